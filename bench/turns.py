"""Processes that share a GPU: each compiles beside the others, and has the GPU for itself where it measures. Parts of
torch_models.py and torch_training.py.

A process answers by lines of JSON. TURN asks for the GPU, which a line of its input grants, and LEAVE gives it back; any other
answer is its last before it is asked for more, and gives it back, too. Processors of one machine differed by two: what is timed in turns
on a GPU is held on the same few (`Turn.asked`), and each turn says how fast they were, by a loop that is always the same (`loop_ms`).

Programs that share a GPU name one file in CONVTUNE_GPU_LOCK: who has the GPU holds it, so that one compiles while another measures
(`flock FILE program` for one that knows nothing of it).
"""

import contextlib
import fcntl
import json
import math
import os
import select
import subprocess
import sys
import time

TURN, LEAVE = "turn", "leave"
PROCESSORS = len(os.sched_getaffinity(0))
AT_ONCE = max(2, PROCESSORS // 3)
_HELD = 4  # a step keeps two threads busy, the caller's and autograd's, one at a time
_LOOP = 100_000


@contextlib.contextmanager
def alone():
    """Waits until no other program measures on the GPU, by the file in CONVTUNE_GPU_LOCK; at once where none is named."""
    path = os.environ.get("CONVTUNE_GPU_LOCK")
    if not path:
        yield
        return
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def hold_processors():
    """Leaves this process's threads the first four of its processors: processes that take turns then run on the same ones."""
    held = sorted(os.sched_getaffinity(0))[:_HELD]
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread), held)


def loop_ms():
    """Times a fixed piece of Python's work: it shows the processor's clock, and who else is on its core."""
    start = time.perf_counter()
    sum(range(_LOOP))
    return 1e3 * (time.perf_counter() - start)


class Turn:
    """A process's own side. What it prints goes to the error stream from now on."""

    def __init__(self):
        self.answers, sys.stdout = sys.stdout, sys.stderr
        self.taken, self.waited, self.lock = False, 0.0, contextlib.ExitStack()

    def answer(self, value):
        self.lock.close()
        print(json.dumps(value), file=self.answers, flush=True)

    def take(self):
        if not self.taken:
            begin = time.monotonic()
            self.answer(TURN)
            sys.stdin.readline()
            self.lock.enter_context(alone())
            self.taken, self.waited = True, self.waited + time.monotonic() - begin

    def leave(self):
        if self.taken:
            self.answer(LEAVE)
        self.taken = False

    def asked(self, held):
        """Yields the lines that it is asked once it is ready; from the first on its threads are `held` on the same few processors. Not
        where the CPU is the device, whose work is for all of its threads."""
        for line in sys.stdin:
            if held:
                hold_processors()
            yield line.strip()


class Worker:
    """A way of a model: `row` is its first answer, `samples` what else it measured."""

    def __init__(self, name, way, command):
        self.name, self.way, self.command = name, way, [sys.executable, *command]
        self.samples, self.row, self.process = [], None, None

    def begin(self, threads):
        environment = {"TORCHINDUCTOR_COMPILE_THREADS": str(threads), **os.environ}
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def answer(self, until=math.inf):
        """None where the process has failed, or has not answered at that time and is ended; what it said is on the error stream."""
        wait_s = None if until == math.inf else max(until - time.monotonic(), 0.0)
        if not select.select([self.process.stdout], [], [], wait_s)[0]:  # a line is all that is ever there: nothing is buffered
            self.process.kill()
            print(f"{self.name} {self.way}: no time left", flush=True)
            return None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def ask(self, what, until=math.inf):
        with contextlib.suppress(BrokenPipeError):
            print(what, file=self.process.stdin, flush=True)
            return self.answer(until)
        return None

    def end(self):
        if self.process is None:
            return
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def make_ready(workers, at_once, until, look):
    """Begins workers in their order, `at_once` at once; who comes first in it has the GPU first. `look` is given each that is ready,
    while nothing else runs there. Who is not ready at that time is left out."""
    waiting, busy, wanting, holder = list(workers), [], [], None
    while waiting or busy:
        while waiting and len(busy) < at_once:
            busy.append(waiting.pop(0))
            busy[-1].begin(max(2, 2 * PROCESSORS // at_once))  # some of them wait or measure
        if holder is None and wanting:
            holder = min(wanting, key=workers.index)
            wanting.remove(holder)
            with contextlib.suppress(BrokenPipeError):  # it has died, and the next look finds that
                print("go", file=holder.process.stdin, flush=True)
        of = {one.process.stdout: one for one in busy}
        spoke = select.select(list(of), [], [], None if until == math.inf else max(until - time.monotonic(), 0.0))[0]
        if not spoke:
            for one in busy:
                one.process.kill()
            print("no time left:", ", ".join(f"{one.name} {one.way}" for one in busy + waiting), flush=True)
            return
        for one in map(of.get, spoke):
            answer = one.answer()
            if answer == TURN:
                wanting.append(one)
                continue
            holder = None if one is holder else holder
            if answer == LEAVE:
                continue
            busy.remove(one)
            wanting = [other for other in wanting if other is not one]
            one.row = answer
            if answer is None:
                print(f"{one.name} {one.way} failed", flush=True)
            else:
                look(one)
