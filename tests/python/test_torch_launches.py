"""Launches of inductor's kernels by a shorter way: the same calls, and inductor's own way wherever anything is unlike what is known."""

import types

import pytest
from torch_steps import assert_same, small, stepped
from torch_support import on_gpu, torch

from convtune._contest import Contest
from convtune.torch import backend, launches
from convtune.torch.launches import compiled_meanwhile, shorten
from convtune.torch.measure import proof

triton_heuristics = pytest.importorskip("torch._inductor.runtime.triton_heuristics")


class Binary:
    """As inductor's kernel that is launched from its binary."""

    has_global_scratch = has_profile_scratch = False
    function, arg_tys, num_warps, shared = 7, "OOi", 4, 128

    def __init__(self):
        self.calls, self.C_impl = [], types.SimpleNamespace(_launch_kernel=lambda *rest: self.calls.append(rest))

    def run(self, x, y, z, stream, *args):
        self.calls.append("its own")
        self.C_impl._launch_kernel(self.function, x, y, z, self.num_warps, self.shared, self.arg_tys, args, stream)


class Kernel:
    """As inductor's, which counts what is asked of it."""

    triton_interpret = dump_launch_params = dump_launch_tensors = False

    def __init__(self, binary, launchers=1, is_static=True):
        scope = {"runner": binary.run}
        exec("def launcher(a, b, n, stream):\n    runner(-(n // -32), 1, 1, stream, a, b, n)\n    return 'launched'", scope)
        scope["launcher"].config, scope["launcher"].store_cubin = types.SimpleNamespace(), False
        if is_static:
            scope["launcher"]._is_static = True
        self.launchers, self.inductor_meta, self.runs = [scope["launcher"]] * launchers, {}, []

    def run(self, *args, stream, **more):
        self.runs.append(more)
        return self.launchers[0](*args, stream=stream)


LAUNCH = (7, 4, 1, 1, 4, 128, "OOi", ("a", "b", 100), 5)


@pytest.mark.parametrize("known", [True, False])
def test_the_shorter_way_launches_the_same(known, monkeypatch):
    monkeypatch.setattr(launches, "_KNOWN", torch.__version__[:4] if known else "0.0.")
    binary = Binary()
    kernel = Kernel(binary)
    short = launches._Shortened(kernel)
    assert [short.run("a", "b", 100, stream=5) for _ in range(3)] == ["launched"] * 3
    assert len(kernel.runs) == 1 and [one for one in binary.calls if one != "its own"] == [LAUNCH] * 3
    assert binary.calls.count("its own") == (1 if known else 3)
    assert short.inductor_meta is kernel.inductor_meta


@pytest.mark.parametrize("unlike", ["two launchers", "not static", "interpreted", "dumped", "descends", "binary"])
def test_what_is_unlike_is_inductors(unlike):
    binary = Binary()
    kernel = Kernel(binary, 2 if unlike == "two launchers" else 1, unlike != "not static")
    kernel.triton_interpret, kernel.dump_launch_params = unlike == "interpreted", unlike == "dumped"
    kernel.inductor_meta["coordinate_descent_tuning"] = unlike == "descends"
    kernel.launchers[0].store_cubin = unlike == "binary"
    short = launches._Shortened(kernel)
    for _ in range(3):
        short.run("a", "b", 100, stream=5)
    assert len(kernel.runs) == 3


@pytest.mark.parametrize("missing", ["dump_launch_tensors", "store_cubin", "get_active_debug_mode", "has_profile_scratch"])
def test_another_pytorch_launches_as_ever(missing, monkeypatch):
    """One that has not all of what is asked of 2.11."""
    kernel = Kernel(Binary())
    if missing == "store_cubin":
        del kernel.launchers[0].store_cubin
    else:
        where = {"dump_launch_tensors": Kernel, "get_active_debug_mode": triton_heuristics, "has_profile_scratch": Binary}[missing]
        monkeypatch.delattr(where, missing)
    short = launches._Shortened(kernel)
    assert [short.run("a", "b", 100, stream=5) for _ in range(3)] == ["launched"] * 3
    assert len(kernel.runs) == 3


@pytest.mark.parametrize("scratch", ["has_global_scratch", "has_profile_scratch"])
def test_a_kernel_with_memory_of_its_own_ends_as_inductors(scratch, monkeypatch):
    monkeypatch.setattr(launches, "_KNOWN", torch.__version__[:4])
    binary = Binary()
    setattr(binary, scratch, True)
    short = launches._Shortened(Kernel(binary))
    for _ in range(2):
        short.run("a", "b", 100, stream=5)
    assert binary.calls.count("its own") == 2


def test_who_looks_sees_inductors_way(monkeypatch):
    kernel = Kernel(Binary())
    short = launches._Shortened(kernel)
    for _ in range(2):
        short.run("a", "b", 100, stream=5)
    assert len(kernel.runs) == 1
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        short.run("a", "b", 100, stream=5)
    assert len(kernel.runs) == 2
    monkeypatch.setattr(triton_heuristics, "get_active_debug_mode", lambda: True)
    short = launches._Shortened(kernel)
    for _ in range(2):
        short.run("a", "b", 100, stream=5)
    assert len(kernel.runs) == 4
    short.run("a", "b", 100, stream=5, benchmark_run=True)
    assert kernel.runs[-1] == {"benchmark_run": True}


def test_kernels_of_the_code_are_found(monkeypatch):
    monkeypatch.setattr(triton_heuristics, "CachingAutotuner", Kernel)
    module, of_a_kernel = types.ModuleType("code"), types.ModuleType("a kernel's source")
    module.kernel, module.other, module.call = Kernel(Binary()), 3, len
    of_a_kernel.kernel = module.kernel  # which inductor reads again, for other graphs, too, if it compiles in this process
    assert shorten([of_a_kernel, module]) == 1 and module.other == 3 and type(of_a_kernel.kernel) is Kernel
    module.kernel.run("a", "b", 100, stream=5)
    Kernel._build_fast_launcher = None  # as newer versions have
    try:
        assert shorten([module]) == 0
    finally:
        del Kernel._build_fast_launcher


def test_code_that_is_loaded_meanwhile_is_found(tmp_path):
    from torch._inductor.codecache import PyCodeCache

    with compiled_meanwhile() as modules:
        made = PyCodeCache.load(f"kernel = {str(tmp_path)!r}")
    assert modules == [made]
    with compiled_meanwhile() as modules:
        assert PyCodeCache.load(f"kernel = {str(tmp_path)!r}") is made
    assert modules == []


@on_gpu
@pytest.mark.usefixtures("afresh")
def test_a_step_by_the_shorter_way_is_eagers(monkeypatch):
    monkeypatch.setattr(backend, "waits_for_processor", lambda *_: True)
    monkeypatch.setattr(proof, "contest", lambda *_, **__: Contest(True, 0.5, 0.5, 0.5, 100.0, 50.0, 10))
    x, models = torch.rand(2, 3, 16, 16, device="cuda"), [small().cuda() for _ in range(2)]
    run = torch.compile(models[0], backend="convtune")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        assert_same(stepped(models[0], x, run, 5), stepped(models[1], x, models[1], 5))
    notes = backend.last_report().notes
    is_shorter = not hasattr(triton_heuristics.CachingAutotuner, "_build_fast_launcher")
    assert any("by a shorter way" in note for note in notes) == is_shorter
