"""tune_all: workers of processes, threads and Dask; lost ones, whose problems are given again; records merged and resumed."""

import concurrent.futures
import json
import multiprocessing
import os
import pickle
import random
import signal
import threading
import time
from functools import partial

import convtune
import pytest
from convtune import _library, optimize_report, worker
from convtune.model import ModelConvolution, ModelProblems
from convtune.optimize_report import Layer, shipped_note

pytestmark = pytest.mark.usefixtures("one_thread", "own_records")

PROBLEMS = [f"mb1ic{c}ih{h}oc4kh3" for c in (2, 3) for h in (7, 8, 9)]
SMALL = dict(device="cpu", budget=20, min_gain=0.99, trials=3, progress=False)  # 0.99 is decided at once
Processes = concurrent.futures.ProcessPoolExecutor


@pytest.fixture
def own_records(tmp_path, monkeypatch):
    """Records of the test's own, and two workers at a time even where there is one processor."""
    monkeypatch.setenv("CONVTUNE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(worker.os, "sched_getaffinity", lambda _: set(range(4)))


def another_machine(folder, threads=1):
    """Begins a worker that has records of its own, as on another host."""
    convtune.set_cpu_threads(threads)
    os.environ["CONVTUNE_DATA_DIR"] = f"{folder}/{os.getpid()}"


def processes(tmp_path, count=2):
    """A function that makes a pool of such workers, and the list of those that it made."""
    made = []

    def make():
        context = multiprocessing.get_context("fork")
        made.append(Processes(count, context, another_machine, (tmp_path,)))
        return made[-1]

    return make, made


def recorded():
    lines = _library.take_text(_library.library.convtune_export_records).splitlines()
    return sorted(json.loads(line)["problem"] for line in lines)


def expected(problems=PROBLEMS):
    return sorted(convtune.Problem.parse(text).replace(precision="fp32").key for text in problems)


def test_processes_with_records_of_their_own(tmp_path):
    steps = []
    make, made = processes(tmp_path)
    report = convtune.tune_all([*PROBLEMS, PROBLEMS[0]], make, **{**SMALL, "progress": steps.append})
    assert [row.convolution.count for row in report.rows] == [2, 1, 1, 1, 1, 1]
    assert recorded() == expected() and len(made) == 1
    assert not any(row.report.tuning.from_record for row in report.rows)
    assert [step.done for step in steps] == [1, 2, 3, 4, 5, 6] and steps[-1].total == 6 and steps[-1].best_us > 0
    folders = {os.path.dirname(row.report.tuning.record) for row in report.rows}
    assert folders and str(tmp_path / "data") not in folders, "workers wrote into the caller's folder"
    assert convtune.plan(PROBLEMS[0], device="cpu").plan.source == "tuned"
    # On fresh machines a second call searches nothing: the caller's records go along.
    make, _ = processes(tmp_path / "fresh")
    again = convtune.tune_all([*PROBLEMS, "mb1ic5ih8oc4kh3"], make, **SMALL)
    assert [row.report.tuning.from_record for row in again.rows] == [True] * 6 + [False]
    times = [row.report.own.time_us for row in report.rows]
    assert [row.report.own.time_us for row in again.rows[:6]] == times
    assert len(recorded()) == 7


def test_a_worker_that_is_killed_at_a_random_moment(tmp_path):
    make, made = processes(tmp_path)
    seconds = random.uniform(0, 0.3)
    killed = []

    def kill(step):
        if step.done == 2 and not killed:
            killed.append(random.choice(list(made[0]._processes)))
            threading.Timer(seconds, os.kill, (killed[0], signal.SIGKILL)).start()

    problems = [f"mb1ic{c}ih{h}oc4kh3" for c in (2, 3, 4) for h in range(6, 16)]
    report = convtune.tune_all(problems, make, **{**SMALL, "progress": kill})
    assert killed and len(made) == 2, seconds
    assert len(report.rows) == 30 and recorded() == expected(problems), seconds


def test_what_kills_its_worker_each_time_costs_no_other_problem(tmp_path, monkeypatch):
    search = worker.search

    def deadly(problem, *rest):
        if problem.h == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return search(problem, *rest)

    monkeypatch.setattr(worker, "search", deadly)
    make, made = processes(tmp_path)
    deadly_ones = [text for text in PROBLEMS if "ih8" in text]
    with pytest.raises(convtune.Error, match="2 of 6 problems have no answer: mb1ic2ih8oc4kh3: .*attempt 3 of 3.*the same "):
        convtune.tune_all(PROBLEMS, make, **SMALL)
    assert recorded() == expected([text for text in PROBLEMS if text not in deadly_ones])
    assert 4 <= len(made) <= 8


def test_a_pool_that_is_no_function_cannot_be_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "search", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with processes(tmp_path)[0]() as pool, pytest.raises(convtune.Error, match="the executor is broken.*partial"):
        convtune.tune_all(PROBLEMS, pool, **SMALL)


def test_a_function_that_gives_the_same_pool_again_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "search", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    pool = processes(tmp_path)[0]()
    with pytest.raises(convtune.Error, match="broken from the start.*must make a new one each time"):
        convtune.tune_all(PROBLEMS, lambda: pool, **SMALL)


class Inline(concurrent.futures.Executor):
    """Runs what it is given at once, but what `loses` picks, which fails as an engine's lost worker does."""

    def __init__(self, loses=lambda number: False):
        self.loses, self.given = loses, 0

    def submit(self, function, /, *args):
        future = concurrent.futures.Future()
        self.given += 1
        try:
            if function is worker.search_here and self.loses(self.given):
                raise RuntimeError("KilledWorker")
            future.set_result(function(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def test_a_lost_worker_has_its_problem_given_again():
    lost = Inline(lambda number: number in (2, 4))
    report = convtune.tune_all(PROBLEMS, lost, **SMALL)
    assert len(report.rows) == 6 and lost.given == 1 + 6 + 2 and recorded() == expected()
    always = Inline(lambda _: True)
    with pytest.raises(convtune.Error, match="RuntimeError: KilledWorker .attempt 2 of 2..*; and 1 more"):
        convtune.tune_all([*PROBLEMS], always, attempts=2, retune=True, **SMALL)
    assert always.given == 1 + 2 * 6


def test_threads_are_the_engine_of_one_host():
    model = ModelProblems("two", [ModelConvolution(convtune.Problem.parse(PROBLEMS[0]), 3, ["a", "b", "c"])])
    report = convtune.tune_all(model, **SMALL)
    assert report.name == "two" and report.rows[0].convolution.count == 3 and "all convolutions" in str(report)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert len(convtune.tune_all(PROBLEMS, pool, **SMALL).rows) == 6
    assert recorded() == expected()


def test_an_interrupt_keeps_what_arrived():
    def stop(step):
        if step.done == 2:
            raise KeyboardInterrupt

    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with pytest.raises(KeyboardInterrupt, match="of 6 problems are done; the same call goes on"):
            convtune.tune_all(PROBLEMS, pool, **{**SMALL, "trials": 0, "budget": 2, "progress": stop})
    assert time.monotonic() - begun < 60
    before = recorded()
    assert 2 <= len(before) < 6
    report = convtune.tune_all(PROBLEMS, Inline(), **SMALL)
    assert sum(row.report.tuning.from_record for row in report.rows) == len(before) and recorded() == expected()


def test_what_no_worker_runs_is_skipped_and_what_is_wrong_is_refused(monkeypatch):
    report = convtune.tune_all([PROBLEMS[0], "mb1ic3ih9oc4kh3sh2ph1 dtype=bf16 dir=bwd_d residual=1 rounding=eager"], Inline(), **SMALL)
    assert len(report.rows) == 1 and len(report.skipped) == 1 and report.skipped[0].why
    with pytest.raises(convtune.Error, match=r"1 of 2 .*mb0ic2ih8oc4kh3: worker .*:\d+: a batch of 0"):
        convtune.tune_all([PROBLEMS[0], "mb0ic2ih8oc4kh3"], Inline(), **SMALL)
    engine = Inline()
    for problems, more, words in [
        (["mb1ic3"], {}, "oc"), ([], {}, "no problem given"), (PROBLEMS, {"executor": 3}, "submit"),
        (PROBLEMS, {"attempts": 0}, "attempts"), (PROBLEMS, {"trials": -1}, "trials"), (PROBLEMS, {"budget": -1}, "budget"),
    ]:  # fmt: skip
        with pytest.raises(convtune.InvalidArgument, match=words):
            convtune.tune_all(problems, **{"executor": engine, **SMALL, **more})
    assert engine.given == 0
    with pytest.raises(convtune.NoDevice, match="no device cuda:77 on .*; there is"):
        convtune.tune_all(PROBLEMS, engine, **{**SMALL, "device": "cuda:77"})
    monkeypatch.setattr(worker, "kinds", lambda device: ("cuda|another|sm_90a|132 SMs", []))
    with pytest.raises(convtune.Error, match=r"worker .*:\d+: there is no cuda.another.*call tune_all for each kind"):
        convtune.tune_all(PROBLEMS[:1], engine, **SMALL)


def test_a_record_that_is_none_is_not_taken_over(monkeypatch):
    monkeypatch.setattr(worker, "search_here", lambda work: worker.Found("host:1", "{}\n"))
    with pytest.raises(convtune.Error, match="host:1:1: .*not taken over; all workers need this version"):
        convtune.tune_all(PROBLEMS[:1], Inline(), **SMALL)
    assert recorded() == []


def test_a_record_that_cannot_be_written_ends_the_call_and_loses_no_worker(monkeypatch):
    def full(*_):
        raise convtune.errors.FileError("no space left on device")

    monkeypatch.setattr(worker, "import_records", full)
    engine = Inline()
    with pytest.raises(convtune.errors.FileError, match="^no space left"):
        convtune.tune_all(PROBLEMS, engine, **SMALL)
    assert engine.given == 1 + 6, "nothing was searched again"


def test_a_device_is_searched_on_by_one_worker_at_a_time(monkeypatch):
    kind = convtune.devices()[-1].fingerprint
    monkeypatch.setattr(worker.os, "sched_getaffinity", lambda _: {0, os.getpid()})  # two places of this test's own
    looks = []

    def look(_=None):
        looks.append(1)
        if len(looks) > 5:
            raise TimeoutError

    with worker._free_device(kind, look), worker._free_device(kind, look):
        with pytest.raises(TimeoutError), worker._free_device(kind, look):
            pass
    with worker._free_device(kind, lambda: None):
        pass


def test_a_list_is_loaded_as_it_was_saved(tmp_path):
    one = ModelConvolution(convtune.Problem.parse(PROBLEMS[0]), 3, ["a", "b", "c"])
    saved = ModelProblems("net", [one], [convtune.model.SkippedLayers("conv", "no", 1, ["d"])])
    saved.save(tmp_path / "net.json")
    assert ModelProblems.load(tmp_path / "net.json") == saved
    (tmp_path / "net.json").write_text('{"schema": 1, "model": "net", "convolutions": [{"problem": "mb1"}]}')
    with pytest.raises(convtune.InvalidArgument, match="net.json is no list"):
        ModelProblems.load(tmp_path / "net.json")


def test_a_local_dask_cluster(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: scripts/setup_python brings it")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # one kind of device, also of workers that Dask starts anew
    problems = [f"mb1ic{c}ih{h}oc4kh3" for c in (2, 3, 4) for h in range(6, 10)]
    killed = []
    with (
        distributed.LocalCluster(2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.run(another_machine, str(tmp_path))

        def kill(step):
            if step.done == 3 and not killed:
                killed.append(random.choice(list(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        report = convtune.tune_all(problems, client.get_executor(), **{**SMALL, "device": None, "progress": kill})
    kinds = {row.report.device for row in report.rows}
    assert killed and len(report.rows) == 12 and len(kinds) == 1
    assert recorded() == expected(problems)


def test_what_goes_to_workers_is_plain():
    work = worker.work_of(worker.Work("", "", 1.0, 0.02, 0, False), PROBLEMS[0], "cpu|x", "")
    assert pickle.loads(pickle.dumps((worker.search_here, work)))[1] == work


def test_optimize_says_which_layers_have_shipped_records(monkeypatch):
    report = convtune.tune_all(PROBLEMS[:2], Inline(), **SMALL)
    shipped = _library.take_text(_library.library.convtune_export_records)
    layers = [Layer(["a"], row.convolution.problem) for row in report.rows] + [Layer(["b"], None)]
    layers.append(Layer(["c"], convtune.Problem.parse(f"{PROBLEMS[0]} act=relu")))
    layers.append(Layer(["d"], None, pair="pair n1c8t9k3d1k3 dtype=bf16 act=snake"))  # a pair of two layers, no kind of its own
    assert shipped_note(layers) == "", "none of this CPU is shipped"
    monkeypatch.setattr(optimize_report._library, "take_text", lambda _: shipped)
    note = "this version ships records of {} of 4 kinds of layers, which need no search then: `convtune db import --shipped`"
    assert shipped_note(layers).startswith(note.format(2))
    layers[0].problem = layers[0].problem.replace(precision="tf32")
    assert shipped_note(layers).startswith(note.format(1)), "another precision"


def test_gpus_of_a_host_are_shared_out_and_a_lost_one_is_left(monkeypatch):
    kind = "cuda|some|sm_90a|132 SMs"
    gpus = [convtune.Device(f"cuda:{index}", "some", kind, "sm_90a", 132, 1) for index in range(2)]
    monkeypatch.setattr(worker, "devices", lambda: [*gpus, *convtune.devices()])
    monkeypatch.setattr(worker, "_bus_id", lambda index: f"test {os.getpid()} {index}")
    monkeypatch.setattr(worker, "_lost", set())
    assert worker.kinds(None) == (kind, []) and worker.kind_of("cuda:1") == worker.kind_of("cuda") == kind

    def nothing(_=None):
        pass

    with worker._free_device(kind, nothing) as first, worker._free_device(kind, nothing) as second:
        assert (first, second) == (gpus[0], gpus[1])
    for _ in range(2):
        with pytest.raises(convtune.DeviceLost), worker._free_device(kind, nothing):
            raise convtune.DeviceLost("it is gone")
    with pytest.raises(convtune.DeviceLost, match="broke cuda:0, cuda:1 .*new process"), worker._free_device(kind, nothing):
        pass
