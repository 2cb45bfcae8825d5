"""tune, bench, devices: what they answer, how they are stopped, and what is shown meanwhile."""

import io
import pickle
import signal
import subprocess
import sys
import threading
import types

import convtune
import pytest
from convtune import progress
from convtune.report import Report
from convtune.table import lined_up
from processes import python

PROBLEM = "mb1ic3ih8oc4kh3"
SMALL = dict(budget=20, trials=3, progress=False)


pytestmark = pytest.mark.usefixtures("one_thread")


def interrupt():
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def python_hears_interrupts():
    """A test run in the background of a script may begin with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_what_was_found_is_used():
    problem = convtune.Problem(1, 3, 8, 8, 4, 3, 3, name="small")
    assert convtune.plan(problem).plan.source != "tuned"
    steps = []
    # 0.99 is decided at once, however busy the machine.
    report = convtune.tune(problem, "cpu", budget=20, min_gain=0.99, trials=3, progress=steps.append)
    assert report.tuning.trials == 3 and not report.tuning.from_record and report.own.time_us > 0
    assert report.problem == problem.replace(precision="fp32") and report.problem.name == "small"
    assert steps and steps[0].stage in ("vendor", "screen") and any(step.best_us > 0 for step in steps)
    assert convtune.plan(problem).plan.source == "tuned"
    again = convtune.tune(problem, "cpu", **SMALL)
    assert again.tuning.from_record
    assert "nothing was measured" in str(again)
    assert pickle.loads(pickle.dumps(report)) == report
    lines = str(report).splitlines()
    assert lines[0].startswith("mb1ic3ih8oc4kh3") and "roofline" in lines[1]
    header = next(line for line in lines if line.startswith("provider"))
    own = lines[lines.index(header) + 1]
    assert own.startswith("convtune") and len(own) == len(header) and "speed-up" in header
    assert f"search: 3 of {report.tuning.candidates} candidates tried" in str(report)
    assert report.own.how in str(report) and report.tuning.candidates > 3
    assert report.tuning.record == again.tuning.record and report.tuning.record in str(report)


def test_what_cannot_be_recorded_is_said(monkeypatch):
    monkeypatch.setenv("CONVTUNE_DATA_DIR", "/proc/convtune")
    with pytest.warns(RuntimeWarning, match="the result is not recorded: /proc/convtune"):
        report = convtune.tune("mb1ic3ih14oc4kh3", "cpu", **SMALL)
    assert "/proc/convtune" in report.tuning.not_recorded and "is not recorded" in str(report)
    assert convtune.tune("mb1ic3ih14oc4kh3", "cpu", save=False, **SMALL).tuning.not_recorded == ""


def test_bench():
    report = convtune.bench("mb1ic2ih8oc4kh3", "cpu", seconds=0.2)
    assert report.tuning is None and report.own.n > 0 and report.providers[0].name == "convtune"
    assert report.json["providers"][0]["time_us"] == report.own.time_us


def test_bench_warns_of_a_busy_machine(monkeypatch):
    from convtune import _library

    take = _library.take_json

    def busy(*args):
        return {**take(*args), "machine": {"load": 12.0, "processors": 2, "busy": True, "finding": "load 12.0 on 2"}}

    monkeypatch.setattr(_library, "take_json", busy)
    with pytest.warns(RuntimeWarning, match="the machine is busy: load 12.0 on 2"):
        report = convtune.bench("mb1ic2ih8oc4kh3", "cpu", seconds=0.05)
    assert "the machine is busy: load 12.0 on 2" in str(report)


def test_an_interrupt_keeps_what_was_measured():
    problem = convtune.Problem(1, 3, 10, 10, 4, 3, 3)
    seen = []

    def stop(step):
        if step.stage == "screen":
            seen.append(step)
        if len(seen) == 3:
            interrupt()

    with pytest.raises(KeyboardInterrupt, match="goes on from there"):
        convtune.tune(problem, "cpu", budget=30, progress=stop)
    assert convtune.plan(problem).plan.source != "tuned"
    report = convtune.tune(problem, "cpu", **SMALL)
    assert report.tuning.resumed >= 2 and not report.tuning.from_record


def test_what_progress_raises_is_raised():
    def fail(step):
        raise ZeroDivisionError(step.stage)

    with pytest.raises(ZeroDivisionError, match="vendor|screen"):
        convtune.tune("mb1ic3ih12oc4kh3", "cpu", budget=30, save=False, progress=fail)


def test_in_another_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(convtune.tune("mb1ic3ih11oc4kh3", "cpu", save=False, **SMALL)))
    thread.start()
    thread.join()
    assert found[0].own is not None
    assert convtune.plan("mb1ic3ih11oc4kh3").plan.source != "tuned"


def test_ctrl_c_in_a_process_of_its_own():
    program = """
import signal, sys, convtune
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    convtune.tune("mb1ic3ih13oc4kh3", "cpu", budget=100, progress=lambda step: print(step.stage, flush=True))
except KeyboardInterrupt as why:
    print("stopped:", why)
    sys.exit(130)
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() in ("vendor\n", "screen\n")
    child.send_signal(signal.SIGINT)
    said, _ = child.communicate(timeout=60)
    assert child.returncode == 130 and "stopped: the search for mb1ic3ih13oc4kh3 was stopped" in said


def test_ctrl_c_stops_a_measurement():
    """At its next step, not after its seconds."""
    program = """
import os, signal, sys, threading, convtune
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    convtune.bench("mb4ic64ih56oc64kh3ph1", "cpu", seconds=3600)
except KeyboardInterrupt as why:
    print("stopped:", why)
    sys.exit(130)
"""
    child = python("-c", program, timeout=60)
    assert child.returncode == 130
    assert child.stdout == "stopped: the measurement of mb4ic64ih56oc64kh3ph1 was stopped\n"


DAEMONS = """
import threading, time, convtune, convtune._contest
started = threading.Event()

class Slow:  # keeps the interpreter's end long enough for the others to come back into it
    def __del__(self, sleep=time.sleep):
        sleep(1)

def work():
    {work}

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
started.wait()
slow = Slow()
"""


@pytest.mark.parametrize("work", [
    "convtune.tune('mb1ic3ih13oc4kh3', 'cpu', budget=600, save=False, progress=lambda step: started.set())",
    "started.set(); convtune._contest.contest(lambda: 1.0, lambda: 1.0, 0.02, max_rounds=10**9, max_seconds=600)",
])  # fmt: skip
def test_the_interpreter_ends_while_a_daemon_thread_works(work):
    child = python("-c", DAEMONS.format(work=work), timeout=60)
    assert (child.returncode, child.stderr) == (0, "")


def test_devices():
    found = convtune.devices()
    assert str(found[-1]) == "cpu" and found[-1].units >= 1 and found[-1].memory_bytes > 0
    assert all(isinstance(one.fingerprint, str) and one.name for one in found)


def test_cpu_threads():
    before = convtune.devices()[-1].units
    try:
        convtune.set_cpu_threads(1)
        assert convtune.devices()[-1].units == 1
        with pytest.raises(convtune.InvalidArgument, match="0"):
            convtune.set_cpu_threads(0)
        with pytest.raises(convtune.InvalidArgument, match="4294967297"):
            convtune.set_cpu_threads(2**32 + 1)
        with pytest.raises(convtune.InvalidArgument, match="-4294967295"):
            convtune.set_cpu_threads(1 - 2**32)
    finally:
        convtune.set_cpu_threads(before)


STEP = convtune.Step("screen", 34, 120, 1234.5, "direct vectors=4", 61.2)


def test_the_words_of_a_step():
    assert STEP.text("x") == "1 min 02 s left, x: screen 34/120, best 1.234 ms (direct vectors=4)"
    assert convtune.Step("measure", 0, 0, 0.0, "", 0.0).text() == "measure"


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_terminal_is_redrawn_in_place(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "10")
    stream, clock = Terminal(), Clock()
    with progress.ProgressLine(stream, clock) as line:
        line.show("one")
        line.show("too soon")
        clock.now = 1.0
        line.show("two\n and more than fits")
    assert stream.getvalue() == "\rone\033[K\rtwo\N{REPLACEMENT CHARACTER} and…\033[K\r\033[K"


def test_a_pipe_gets_lines_now_and_then():
    stream, clock = io.StringIO(), Clock()
    with progress.ProgressLine(stream, clock) as line:
        for second in range(12):
            clock.now = float(second)
            line.show(f"at {second}" if second < 10 else "x" * 200)
    assert stream.getvalue() == "at 5\n" + "x" * 79 + "…\n"


@pytest.mark.parametrize("broken", [OSError(28, "No space left on device"), ValueError("I/O operation on closed file")])
def test_a_stream_that_cannot_be_written_stops_nothing(broken):
    class Full(Terminal):
        def write(self, text):
            raise broken

    with progress.ProgressLine(Full(), Clock()) as line:
        line.show("nobody sees it")


def test_a_notebook_has_its_own_line(monkeypatch):
    shown = []

    class Handle:
        def update(self, bundle, raw):
            shown.append(bundle["text/plain"])

    def display(bundle, raw, display_id):
        assert raw and display_id
        shown.append(bundle["text/plain"])
        return Handle()

    ipython = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    clock = Clock()
    with progress.ProgressLine(clock=clock) as line:
        line.show("one")
        clock.now = 1.0
        line.show("two")
    assert shown == ["one", "two", ""]


def test_tables_line_up():
    assert lined_up(["a", "us"], [["bb", "1.5"], ["c", "22.5"]], " r") == "a     us\nbb   1.5\nc   22.5\n"


@pytest.mark.parametrize("wrong, words", [
    (dict(budget="60s"), "budget is '60s'; it must be a number of seconds"),
    (dict(budget=-1), "budget is -1; it must be 0 or more and at most 604800 seconds"),
    (dict(budget=float("nan")), "budget is nan; it must be 0 or more"),
    (dict(budget=10**400), "budget is 1000"),
    (dict(min_gain=None), "min_gain is None; it must be a number"),
    (dict(min_gain="2%"), "min_gain is '2%'; it must be a number"),
    (dict(min_gain=-5), "min_gain must lie in [0, 1), not -5"),
    (dict(min_gain=2), "min_gain must lie in [0, 1), not 2"),
    (dict(trials=-1), "trials is -1; it must be 0 or more"),
    (dict(trials=2**64), "trials is 18446744073709551616"),
    (dict(trials=1.5), "trials needs whole numbers, not 1.5"),
    (dict(seconds="1s"), "seconds is '1s'; it must be a number of seconds"),
    (dict(seconds=None), "seconds is None; it must be a number of seconds"),
    (dict(seconds=0), "seconds is 0; it must be above 0 and at most 86400 seconds"),
    (dict(seconds=-1), "seconds is -1; it must be above 0"),
    (dict(seconds=float("inf")), "seconds is inf; it must be above 0"),
])  # fmt: skip
def test_wrong_limits_are_named_as_in_python(wrong, words):
    with pytest.raises(convtune.InvalidArgument) as caught:
        if "seconds" in wrong:
            convtune.bench(PROBLEM, "cpu", **wrong)
        else:
            convtune.tune(PROBLEM, "cpu", **{**SMALL, **wrong})
    assert words in str(caught.value)


def test_a_report_names_the_device_as_the_command_does():
    report = convtune.bench(PROBLEM, "cpu", seconds=0.05)
    here = convtune.devices()[-1]
    head = str(report).splitlines()[1]
    assert head.startswith(f"cpu: {here.name}, {here.units} thread") and f", {here.isa}; roofline" in head
    assert here.fingerprint not in head
    elsewhere = Report.from_json({**report.json, "device": "cpu|of another machine"})
    assert str(elsewhere).splitlines()[1].startswith("cpu|of another machine; roofline")


def test_a_report_of_failures():
    json = {
        "case": "",
        "problem": "mb1ic3ih8oc4kh3",
        "device": "d",
        "roofline": {"floor_us": 0, "bound": ""},
        "providers": [
            dict(name="convtune", algorithm="direct", config="", time_us=2.0, mad_us=0.1, n=9, roofline_fraction=0.5,
                 max_error=1e-7),
            dict(name="peer", algorithm="onednn", config="", time_us=0, mad_us=0, n=0, roofline_fraction=0,
                 max_error=0, failure="broke"),
        ],
        "best_peer": None,
        "speedup": None,
    }  # fmt: skip
    report = Report.from_json(json)
    assert report.own.time_us == 2.0 and "peer failed: broke" in str(report) and hash(report.providers)
    json["failure"] = "out of luck"
    assert Report.from_json(json).own is None and "out of luck" in str(Report.from_json(json))


def test_a_report_says_who_won_by_how_much():
    def engine(nhwc, number, time_us):
        config = f"nhwc={nhwc} engine={number}"
        return dict(name=f"cudnn {config}", algorithm="cudnn", config=config, time_us=time_us, mad_us=10, n=9,
                    roofline_fraction=0.1, max_error=1e-7)  # fmt: skip

    own = {**engine(0, 0, 500.0), "name": "convtune", "algorithm": "direct_stem_sm90", "config": "units=5"}
    peers = [engine(nhwc, number, 1000.0 + number + nhwc) for number in (33, 11, 2) for nhwc in (1, 0)]
    json = {
        "case": "",
        "problem": "mb256ic3ih224oc96kh11sh4ph2",
        "device": "d",
        "incumbent": "cuDNN 9.19.0",
        "roofline": {"floor_us": 100, "bound": "compute"},
        "providers": [own, *peers],
        "best_peer": "cudnn nhwc=0 engine=2",
        "speedup": 1002 / 500,
        "verdict": "convtune is 2.00x faster than the best of the vendor's ways, cudnn nhwc=0 engine=2: 500.0 us ±2.0 % "
        "against 1.002 ms ±1.0 %",
        "decision": "direct_stem_sm90 units=5 against cudnn nhwc=0 engine=2: takes 50.1 % less time",
    }
    text = str(Report.from_json(json))
    assert "bound by compute; incumbent cuDNN 9.19.0\n" in text
    assert "TFLOP/s" in text and "GFLOP/s" not in text
    rows = [line for line in text.splitlines() if line.startswith("cudnn ")]
    assert [row.split("  ")[0] for row in rows] == ["cudnn nhwc=1 engine=2", "cudnn nhwc=0 engine=2"]
    assert "and 4 slower ways of the vendor's" in text
    assert "convtune is 2.00x faster than the best of the vendor's ways, cudnn nhwc=0 engine=2: 500.0 us" in text
    assert "decision: convtune against cudnn" in text and "not proven" not in text
    counts = dict.fromkeys(("trials", "resumed", "pruned", "wrong"), 0)
    json["tuning"] = {"from_record": False, "interrupted": False, "proven": False, **counts}
    assert "1.0 % (not proven)\n" in str(Report.from_json(json))


def test_the_library_is_looked_for_where_one_says(tmp_path):
    def imported(library):
        return python("-c", "import convtune", CONVTUNE_LIBRARY=str(library)).stderr

    assert "is not at " + str(tmp_path / "none.so") in imported(tmp_path / "none.so")
    (tmp_path / "text.so").write_text("no library")
    assert "is not convtune's library" in imported(tmp_path / "text.so")
