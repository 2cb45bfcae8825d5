"""Defines the helpers of the tests that drive the real convtune command: a folder of their own, runs, refusals, signals."""

import contextlib
import fcntl
import os
import pty
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from pathlib import Path

TINY = "mb1ic3ih8oc4kh3ph1"


def no_file_may_grow():
    """A full disk, as far as this process can tell."""
    if "TSAN_OPTIONS" in os.environ:  # ThreadSanitizer writes a file before main() can ignore the signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


class CliTest(unittest.TestCase):
    convtune = ""  # its path: main() sets it

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="convtune_cli_"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.data = self.folder / "data"

    def environment(self):
        return {**os.environ, "CONVTUNE_DATA_DIR": str(self.data)}

    def run_command(self, *args, **options):
        return subprocess.run([self.convtune, *args], env=self.environment(), text=True, timeout=120,
                              stdin=subprocess.DEVNULL,
                              **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options})

    def on_terminal(self, columns, *args):
        """Exit code and all that a terminal of `columns` columns is sent."""
        child, terminal = pty.fork()
        if child == 0:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
            os.execve(self.convtune, [self.convtune, *args], {**self.environment(), "TERM": "xterm", "NO_COLOR": "1"})
        sent = b""
        with contextlib.suppress(OSError), open(terminal, "rb", buffering=0) as stream:
            while block := stream.read(65536):  # an error is its end
                sent += block
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sent.decode().replace("\r\n", "\n")

    def ok(self, *args, **options):
        result = self.run_command(*args, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("\033", result.stdout or "", "colour in a pipe")
        return result

    def refused(self, args, code, *needles):
        """One error line that names the thing, nothing on standard output, the exact exit code."""
        result = self.run_command(*args)
        with self.subTest(args=args):
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertEqual(result.stdout, "")
            errors = [line for line in result.stderr.splitlines() if line.startswith("convtune: error: ")]
            self.assertEqual(len(errors), 1, result.stderr)
            for needle in needles:
                self.assertIn(needle, result.stderr)
        return result

    def warnings(self, result):
        """But those of the machine that the tests run on."""
        return [line for line in result.stderr.splitlines()
                if line.startswith("convtune: warning: ") and "the machine is busy: " not in line]

    def record_file(self):
        files = list(self.data.glob("*.json"))
        self.assertEqual(len(files), 1, files)
        return files[0]

    def interrupt_when(self, ready, *args, with_signal=signal.SIGINT):
        """Starts the command, sends the signal once ready() is true, and returns (exit code, stderr)."""
        with subprocess.Popen([self.convtune, *args], env=self.environment(), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                deadline = time.monotonic() + 60
                while not ready():
                    self.assertIsNone(process.poll(), "ended before it could be interrupted")
                    self.assertLess(time.monotonic(), deadline, "never got far enough to be interrupted")
                    time.sleep(0.02)
                process.send_signal(with_signal)
                _, stderr = process.communicate(timeout=60)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        return process.returncode, stderr


def main():
    CliTest.convtune = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
