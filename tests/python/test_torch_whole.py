"""Contests of whole models by optimize: how long they take, and what is said of them."""

import itertools
import re
import types

import pytest
from torch_optimize_models import Model, X, optimized
from torch_support import torch

import convtune
import convtune.torch.backend  # noqa: F401  (registers it)
from convtune._contest import Contest
from convtune.nn import Conv2d
from convtune.optimize_report import Layer, OptimizeReport
from convtune.torch import optimize
from convtune.torch.measure import decide, timing
from convtune.torch.modules import handover, whole
from convtune.torch.modules.layers import find
from convtune.torch.modules.structure import followers
from convtune.torch.run import choice_line

nn = torch.nn


class Simulated:
    """torch.compile and the clock, simulated: a compiled model takes `us(swapped modules)`. Where the classes of its
    modules have changed since its last call, it takes `changed_us` instead: the guards. A layer takes PyTorch 100 us
    and convtune what `layers` says, one after the other."""

    def __init__(self, monkeypatch, us, changed_us=lambda swapped: 1e4, layers=itertools.repeat(50)):
        self.us, self.changed_us, self.layers, self.now, self.compiled = us, changed_us, iter(layers), 0.0, []
        real = decide.contest

        def contest(incumbent, challenger, min_gain, **rules):
            if min_gain == 0.02:  # a layer's
                us = next(self.layers)
                gain = 1 - us / 100
                return Contest(True, gain, gain, gain, 100.0, us, 10)
            return real(incumbent, challenger, min_gain, **rules)

        monkeypatch.setattr(decide, "contest", contest)
        monkeypatch.setattr(decide, "Stopwatch", lambda device: self)
        monkeypatch.setattr(torch, "compile", self.compile)
        monkeypatch.setattr(timing, "time", types.SimpleNamespace(perf_counter=lambda: self.now))

    def time_us(self, run):
        return 100.0

    def compile(self, model, **how):
        self.compiled.append((model, how))
        last = [None]

        def call(x):
            swapped = [name for name, one in model.named_modules() if type(one) is Conv2d]
            us = self.us if swapped == last[0] else self.changed_us
            last[0] = swapped
            self.now += 1e-6 * us(swapped)

        return call


def test_compiled_it_is_compared_with_what_its_user_would_run(monkeypatch):
    """The times are EfficientNet-B0's on one H200: alone in a process, and while one model was both sides."""
    simulated = Simulated(monkeypatch, lambda swapped: 5798 if swapped else 3885, lambda swapped: 5016 if swapped else 8032)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)).eval()
    report = optimized(model, X, compiled=True).convtune_report
    assert not report.kept and type(model[0]) is nn.Conv2d
    assert report.before_us == pytest.approx(3885) and report.after_us == pytest.approx(5798)
    assert simulated.compiled[0][0] is not model and simulated.compiled[1] == (model, {"mode": "default"})


def test_the_incumbent_shares_the_parameters(monkeypatch):
    simulated = Simulated(monkeypatch, lambda swapped: 90 if swapped else 100)
    model = Model().eval()
    optimized(model, X, compiled="reduce-overhead")
    twin, how = simulated.compiled[0]
    assert how["options"]["triton.cudagraphs"] and simulated.compiled[1] == (model, {"mode": "reduce-overhead"})
    assert twin is not model and not any(isinstance(one, Conv2d) for one in twin.modules())
    for mine, theirs in zip((*model.parameters(), *model.buffers()), (*twin.parameters(), *twin.buffers())):
        assert mine is theirs


def test_only_the_layers_stay_that_are_worth_their_cost(monkeypatch):
    """Each swapped call costs 60 us around it; one layer saves 100 us, two save 10."""
    saved = {"0": 100, "1": 10, "2": 10}
    us = lambda swapped: 1000 + sum(60 - saved[name] for name in swapped)  # noqa: E731
    Simulated(monkeypatch, us, layers=(0.1, 90, 90))
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 4, 3)).eval()
    report = optimized(model, X, compiled=True).convtune_report
    assert report.kept and report.before_us == pytest.approx(1000) and report.after_us == pytest.approx(960)
    assert [type(one) for one in model] == [Conv2d, nn.Conv2d, nn.Conv2d]
    assert [layer.swapped for layer in report.layers] == [True, False, False]
    assert "did not gain by it" in report.layers[1].decision


def test_no_contest_is_begun_when_they_took_their_time(monkeypatch):
    """As above, but no time is left: the layer that would be tried again is not."""
    monkeypatch.setattr(optimize, "_CONTESTS_SECONDS", 0.0)
    saved = {"0": 100, "1": 10, "2": 10}
    us = lambda swapped: 1000 + sum(60 - saved[name] for name in swapped)  # noqa: E731
    simulated = Simulated(monkeypatch, us, layers=(0.1, 90, 90))
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 4, 3)).eval()
    report = optimized(model, X, compiled=True).convtune_report
    assert len(simulated.compiled) == 2 and not report.kept and not any(layer.swapped for layer in report.layers)


def test_a_contest_of_the_whole_tells_how_long_it_takes_still(monkeypatch):
    Simulated(monkeypatch, lambda swapped: 90 if swapped else 100)
    shown = []
    monkeypatch.setattr(optimize.ProgressLine, "show", lambda self, text: shown.append(text))
    convtune.optimize(Model().eval(), X, budget=0, compiled=True)
    of_the_whole = [text for text in shown if "the whole model" in text]
    assert of_the_whole[0] == "the whole model: contest 1"
    assert len(of_the_whole) > 40 and all(re.match(r"\d+ s left, the whole", text) for text in of_the_whole[1:])


def test_layers_without_a_search_take_a_minute_together(monkeypatch):
    seconds = []

    def contest(incumbent, challenger, min_gain, **rules):
        seconds.append(rules["max_seconds"])
        return Contest(False, 0.0, -0.1, 0.1, 100.0, 100.0, 10)

    monkeypatch.setattr(decide, "contest", contest)
    for limit, most in ((60.0, 5.0), (6.0, 2.0), (0.0, 1.0)):
        seconds.clear()
        monkeypatch.setattr(decide, "_CONTESTS_SECONDS", limit)
        optimized(Model().eval(), X)
        assert len(seconds) == 3 and 1 <= min(seconds) and max(seconds) <= 5
        assert seconds[0] == pytest.approx(most, rel=0.3)  # the others have what it left


def test_a_slow_run_is_not_run_twice(monkeypatch):
    now, runs = [0.0], []
    monkeypatch.setattr(timing, "time", types.SimpleNamespace(perf_counter=lambda: now[0]))

    def run():
        runs.append(1)
        now[0] += took

    for took, count in ((2.0, 1), (0.001, 4)):
        runs.clear()
        assert timing.wall_us(run, torch.device("cpu"), 3) == pytest.approx(1e6 * took) and len(runs) == count


def test_a_contest_folds_and_packs_each_layer_once(monkeypatch):
    """A swap before each sample made all weights anew in its first run: 0.6 s of a ResNet-50, as long as a slow run, which is the sample."""
    folded, real = [], handover.Folded
    monkeypatch.setattr(handover, "Folded", lambda *of: folded.append(1) or real(*of))
    monkeypatch.setattr(whole, "contest", lambda before, after, *rules, **more: Contest(True, *[before() + after() for _ in range(3)]))
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
    behind = followers(model)
    found, _ = find(model, lambda: model(X), behind)
    problem = found[0].problem
    plan = convtune.Convolution(problem, "cpu", "ours").plan
    choices = choice_line("cpu", problem, problem, plan.algorithm, plan.config)
    held = whole.Whole(model, (X,), {}, torch.device("cpu"), "", behind)
    with torch.no_grad():
        assert held.contest({"0": choices}, lambda seconds: None).accepted
        assert len(folded) == 1 and type(model[0]) is nn.Conv2d and "led" not in vars(model[0])
        assert held.contest({"0": choices}, lambda seconds: None).accepted and len(folded) == 1
        model[1].weight.mul_(2)  # kept weights are watched
        expected = model(X)
        held._swap({"0": choices})
        assert torch.allclose(model(X), expected, atol=1e-5) and len(folded) == 1


def test_one_number_says_what_was_gained():
    """The median of the rounds' ratios is not the ratio of the sides' medians, which is then not shown."""
    outcome = Contest(False, 0.309, -0.403, 0.496, 1927e3, 1524e3, 10)
    layer = Layer(["conv"], convtune.Problem.parse("mb1ic3ih8oc4kh3"), 1)
    layer.take(outcome)
    report = OptimizeReport("cpu", False, [layer], pytorch="2.99")
    report.take(outcome)
    text = str(report)
    assert text.count("30.9 %") == 2 and "-40.3..49.6" in text and "PyTorch 2.99" in text and "1524" not in text
    for before, after in ((layer.pytorch_us, layer.convtune_us), (report.before_us, report.after_us)):
        assert after / before == pytest.approx(1 - 0.309)


def test_a_budget_is_seconds():
    model = nn.Sequential(nn.Conv2d(3, 8, 3)).eval()
    for wrong in ("60s", -1, float("nan"), None):
        with pytest.raises(convtune.InvalidArgument, match="budget is .*seconds"):
            convtune.optimize(model, X, budget=wrong)

    torch._dynamo.reset()
    compiled = torch.compile(model, backend="convtune", options={"convtune.budget": "60s"})
    with torch.no_grad(), pytest.raises(Exception, match="convtune.budget is '60s'; it must be a number of seconds"):
        compiled(X)
