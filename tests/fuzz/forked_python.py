"""A Python for `convtune --python` whose start costs a hundredth of a second: each process is a fork of the one that
calls served(), with what that has imported. For onnx_fuzz.py, whose readers would spend most of their time importing.
"""

import contextlib
import os
import pickle
import signal
import socket
import sys
import traceback

CLIENT = """#!{python} -ISE
import os, pickle, signal, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"3"], [0, 1, 2])
    server.sendall(pickle.dumps(sys.argv[1:]))
    server.shutdown(socket.SHUT_WR)
    code = int(server.recv(16))
os._exit(code) if code >= 0 else os.kill(os.getpid(), -code)
"""


def become(connection):
    """In a fork: the words are those of `python -u -c PROGRAM ARGUMENTS...`, the files those of whoever asked."""
    _, files, _, _ = socket.recv_fds(connection, 1, 3)
    words = pickle.loads(b"".join(iter(lambda: connection.recv(1 << 16), b"")))
    for number, file in enumerate(files):
        os.dup2(file, number)
    sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))
    sys.stdin = open(0, closefd=False)
    sys.argv = ["-c", *words[words.index("-c") + 2:]]
    exec(words[words.index("-c") + 1], {"__name__": "__main__"})


def code_of(connection):
    """Runs what is asked for in a fork of its own; its exit code, below zero a signal's."""
    child = os.fork()
    if child == 0:
        try:
            become(connection)
            os._exit(0)
        except SystemExit as end:
            os._exit(end.code if isinstance(end.code, int) else 1 if end.code else 0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextlib.contextmanager
def served(folder):
    """The path of that Python, while this lasts."""
    address, program = os.path.join(folder, "socket"), os.path.join(folder, "python3")
    with open(program, "w") as file:
        file.write(CLIENT.format(python=sys.executable, address=address))
    os.chmod(program, 0o700)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        server = os.fork()
        if server == 0:
            while True:
                connection = listening.accept()[0]
                if os.fork() == 0:  # so that one that hangs keeps nobody waiting
                    with contextlib.suppress(OSError):  # who asked may be gone
                        connection.sendall(b"%d" % code_of(connection))
                    os._exit(0)
                connection.close()
    try:
        yield program
    finally:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
