"""For every test: records and compiled kernels in a folder of the run's own, so that no test sees what a user has
tuned, and none leaves anything behind."""

import os
import shutil
import sys
import tempfile

import pytest

_folder = tempfile.mkdtemp(prefix="convtune-test-")
os.environ["CONVTUNE_DATA_DIR"] = os.path.join(_folder, "data")
os.environ["CONVTUNE_CACHE_DIR"] = os.path.join(_folder, "cache")


@pytest.fixture(autouse=True)
def no_contest_before():
    """A contest's outcome in one test is forgotten before the next."""
    yield
    contests = sys.modules.get("convtune.torch.measure.contests")
    if contests is not None:
        contests.forget()


@pytest.fixture(scope="module")
def one_thread():
    """Calls this small take longer to share than to do, the more so on a machine that others use."""
    import convtune

    before = convtune.devices()[-1].units
    convtune.set_cpu_threads(1)
    yield
    convtune.set_cpu_threads(before)


@pytest.fixture
def exact_products():
    """Products of float32 in full, so that one tolerance serves the CPU and the GPU."""
    import torch

    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


@pytest.fixture
def afresh(exact_products):
    """PyTorch's compiler and ours as if nothing had been compiled yet, in full fp32."""
    import torch

    from convtune.torch import backend
    from convtune.torch.graph import chains

    torch._dynamo.reset()
    chains._decided.clear(), chains._of_any_batch.clear()
    backend._kept.clear()
    yield
    chains._decided.clear(), chains._of_any_batch.clear()
    torch._dynamo.reset()


@pytest.fixture
def decided(monkeypatch):
    """Contests that say what `gains` tells: of the layers by their number, and last of the whole model."""
    from convtune.torch.measure import decide
    from convtune.torch.modules import whole
    from convtune._contest import Contest

    gains = {"layers": 0.5, "whole": 0.5, "asked": []}

    def contest_of(kind):
        def contest(incumbent, challenger, min_gain, **_):
            gain = gains[kind]
            gains["asked"].append(kind)
            before, after = incumbent(), challenger()
            assert before > 0 and after > 0
            return Contest(gain > 0, gain, gain, gain, 100.0, 100 * (1 - gain), 1)

        return contest

    monkeypatch.setattr(decide, "contest", contest_of("layers"))
    monkeypatch.setattr(whole, "contest", contest_of("whole"))
    return gains


@pytest.fixture
def graphs(monkeypatch):
    """The graphs that inductor is given, in order; each is run as it stands."""
    seen = []

    def compile_fx(module, inputs, **_):
        seen.append(module.graph)
        return module

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", compile_fx)
    return seen


@pytest.fixture
def nothing_ready(exact_products):
    """No call is ready in C++, and products are exact."""
    import torch

    import convtune

    convtune.clear_caches()
    with torch.no_grad():
        yield


@pytest.fixture
def prepared(monkeypatch):
    """The calls that Python had to prepare, so far."""
    from convtune.torch import native

    calls = []
    prepare = native._prepare
    monkeypatch.setattr(native, "_prepare", lambda *call: calls.append(call) or prepare(*call))
    return calls


def pytest_sessionfinish():
    shutil.rmtree(_folder, ignore_errors=True)
