"""Models that were made in inference mode: optimize makes their parameters such that weights are packed once, as in any
other model; and the layers that it measures there are as the model's."""

import pytest
from torch_optimize_models import Model, X, optimized
from torch_support import assert_near, torch

import convtune
import convtune.torch.backend  # registers the backend
from convtune.convolution import Convolution
from convtune.torch.measure import decide

nn = torch.nn


def made_in_inference_mode():
    with torch.inference_mode():
        return Model().eval()


@pytest.fixture
def packs(monkeypatch):
    """A list with a name for each time that weights are packed."""
    found, pack = [], Convolution.pack_raw
    monkeypatch.setattr(Convolution, "pack_raw", lambda *arguments: (found.append("pack"), pack(*arguments))[1])
    return found


def test_weights_are_packed_once(decided, packs):
    model = made_in_inference_mode()
    with torch.inference_mode():
        optimized(model, X)
        assert model.convtune_report.kept
        model(X)
        packs.clear()
        for _ in range(3):
            model(X)
    with torch.no_grad():
        model(X)
    assert packs == []


def test_writes_are_seen(decided):
    model = made_in_inference_mode()
    reference = made_in_inference_mode()
    with torch.inference_mode():
        optimized(model, X)
        for number in range(3):
            for one in model.parameters():
                one.mul_(1.1).add_(0.01 * number)
            reference.load_state_dict(model.state_dict())
            assert_near(model(X), reference(X))


def test_parameters_stay_where_they_are(decided):
    model = made_in_inference_mode()
    with torch.inference_mode():
        model.tied, model.frozen = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)
        model.tied.weight = model.own.weight
        model.own.weight.mark = "mine"
        model.frozen.weight.requires_grad_(False)
        model.norm.running_mean.add_(1)
    before = {name: (one.data_ptr(), one.stride(), one.dtype, type(one)) for name, one in model.state_dict().items()}
    kinds = {name: (type(one), one.requires_grad) for name, one in model.named_parameters()}
    optimized(model, X)
    after = {name: (one.data_ptr(), one.stride(), one.dtype, type(one)) for name, one in model.state_dict().items()}
    assert before == after and kinds == {name: (type(one), one.requires_grad) for name, one in model.named_parameters()}
    assert not any(one.is_inference() for one in [*model.parameters(), *model.buffers()])
    assert model.tied.weight is model.own.weight and model.own.weight.mark == "mine"


def test_optimizers_that_were_there_train_the_model(decided):
    model = made_in_inference_mode()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    optimized(model, X)
    before = model.own.weight.detach().clone()
    model.train()(X).square().sum().backward()
    optimizer.step()
    assert not torch.equal(model.own.weight, before)


def test_ordinary_parameters_are_left(decided):
    model = Model().eval()
    before = [id(one) for one in [*model.parameters(), *model.buffers()]]
    with torch.inference_mode():
        optimized(model, X)
    assert before == [id(one) for one in [*model.parameters(), *model.buffers()]]


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("ways", ["optimize", "compile"])
def test_layers_are_measured_as_the_models_run(decided, monkeypatch, packs, ways, autocast):
    """Contests in inference mode: the layers' weights are ordinary, and packed once."""
    counts, real = [], decide.check_and_contest

    def contest(make_sides, *rest, **more):
        line = rest[1]
        ours = make_sides().convtune(line)
        ours()
        packs.clear()
        for _ in range(3):
            ours()
        counts.append(len(packs))
        return real(make_sides, *rest, **more)

    monkeypatch.setattr(decide, "check_and_contest", contest)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)).eval()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        if ways == "optimize":
            optimized(model, X)
        else:
            torch._dynamo.reset()
            torch.compile(model, backend="convtune", options={"convtune.whole": False})(X)
    assert counts and not any(counts)
    convtune.restore(model)


@pytest.mark.parametrize("force", [False, True])
def test_graphs_of_such_parameters_are_left_to_inductor(decided, caplog, packs, force):
    torch._dynamo.reset()
    with torch.inference_mode():
        model = nn.Conv2d(3, 8, 3)
        compiled = torch.compile(model, backend="convtune", options={"convtune.force": force})
        assert_near(compiled(X), model(X))
        model.weight.mul_(2)
        assert_near(compiled(X), model(X))
    assert ("made in inference mode" in caplog.text) is not force and bool(packs) is force
