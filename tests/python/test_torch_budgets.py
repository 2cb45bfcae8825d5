"""The seconds of optimize: which layers are searched, for how long, and what a second call need not search."""

import dataclasses
import types

import pytest
from torch_optimize_models import Model, X, nn

import convtune
from convtune.torch.measure import contests, decide


def test_what_can_gain_most_is_tuned_first():
    """The second, which does twice as much in as much time, gains only the headroom; the third runs once."""
    fast, slow = (convtune.Problem.parse(f"mb{n}ic64ih56oc64kh3ph1") for n in (2, 1))
    us = 100.0
    first, second, third = decide._can_gain([(slow, 10, us), (fast, 10, us), (slow, 1, us)])
    assert second == pytest.approx(10 * us * 0.2) and first == pytest.approx(10 * us * 0.6, rel=0.05)
    assert third == pytest.approx(first / 10)


@pytest.mark.parametrize("layers, budget, shares", [
    ([(60, False), (30, False), (10, False)], 20, [12, 6, 2]),
    ([(60, False), (30, False), (10, False)], 2, [2, 0, 0]),
    ([(60, True), (30, False), (10, True)], 20, [0, 6, 0]),
    ([(60, True), (30, True), (10, False)], 20, [0, 0, 2]),
    ([(60, True), (30, True), (10, False)], 19, [0, 0, 0]),  # 11.4 and 5.7 seconds: too little is left
    ([(60, True), (30, True), (0, False)], 60, [0, 0, 0]),
    ([(60, True)], 20, [0]),
    ([(60, False), (1, True), (1, True), (0, True)], 6, [0, 0, 0, 0]),  # searched with that budget elsewhere
    ([(60, False), (1, True), (-1, True)], 9, [5, 0, 0]),
    ([], 20, []),
])  # fmt: skip
def test_what_records_answer_has_had_its_share(layers, budget, shares, monkeypatch):
    monkeypatch.setattr(decide, "_LEAST_SECONDS", 2.0)
    assert decide._shares(layers, budget) == pytest.approx(shares)


@pytest.fixture
def searched(monkeypatch):
    """Searches that take their time by a clock of their own, and find records of the source `searched["source"]`;
    `searched["problems"]`: of which."""
    found = {"source": "tuned", "problems": [], "records": {}, "now": 0.0}
    plan = decide.Convolution

    def search(problem, _, seconds, *__, **___):
        found["now"] += seconds
        found["problems"].append(problem.key)
        found["records"][problem.key] = found["source"]
        return types.SimpleNamespace(tuning=None)

    def planned(problem, *rest):
        made = plan(problem, *rest).plan
        source = found["records"].get(problem.key, made.source)
        return types.SimpleNamespace(plan=dataclasses.replace(made, source=source))

    monkeypatch.setattr(decide, "time", types.SimpleNamespace(monotonic=lambda: found["now"]))
    monkeypatch.setattr(decide, "search", search)
    monkeypatch.setattr(decide, "Convolution", planned)
    monkeypatch.setattr(decide, "median_us", lambda *_: 100.0)
    return found


def searches_of(searched, model, budget, min_gain=0.02):
    del searched["problems"][:]
    contests._known.clear()  # as another process
    report = convtune.optimize(model.eval(), X, budget=budget, min_gain=min_gain, progress=False).convtune_report
    return len(searched["problems"]), [(layer.swapped, layer.decision) for layer in report.layers]


def test_the_same_call_again_searches_nothing(decided, searched):
    first = searches_of(searched, Model(), 6)
    assert first[0] == 1
    assert searches_of(searched, Model(), 6) == searches_of(searched, Model(), 5) == (0, first[1])
    assert searches_of(searched, Model(), 60)[0] == 2  # the layers that had no share
    assert searches_of(searched, Model(), 600)[0] == 0  # records answer
    searched["records"].clear()
    assert searches_of(searched, Model(), 6)[0] == 1
    assert searches_of(searched, nn.Sequential(Model(), nn.Conv2d(8, 8, 1)), 60)[0] == 3  # another model
    searched["records"].clear()
    contests.forget()
    assert searches_of(searched, Model(), 60)[0] == 3


def test_another_gain_is_another_search(decided, searched):
    searched["source"] = "estimate"  # which finds nothing
    assert searches_of(searched, Model(), 60)[0] == 3 and searches_of(searched, Model(), 60)[0] == 0
    assert searches_of(searched, Model(), 60, 0.3)[0] == 3


def test_what_is_not_proven_is_not_searched_again(decided, searched):
    searched["source"] = "unproven"
    assert searches_of(searched, Model(), 60)[0] == 3
    contests.forget()  # another machine, which has the records by a pack
    assert searches_of(searched, Model(), 60)[0] == 0


def test_a_pack_needs_no_search_where_its_budget_is_not_known(decided, searched):
    assert searches_of(searched, Model(), 6)[0] == 1
    contests.forget()
    assert searches_of(searched, Model(), 3)[0] == 0 and searches_of(searched, Model(), 60)[0] == 2


def test_contests_take_no_time_of_the_searches(decided, searched, monkeypatch):
    contest = decide.contest

    def long(*rest, **more):
        searched["now"] += 100
        return contest(*rest, **more)

    monkeypatch.setattr(decide, "contest", long)
    assert searches_of(searched, Model(), 60)[0] == 3


def test_time_that_is_left_is_for_layers_without_a_share(decided, searched, monkeypatch):
    found = decide.search
    monkeypatch.setattr(decide, "search", lambda problem, device, _, *rest, **more: found(problem, device, 0.1))
    assert searches_of(searched, Model(), 6)[0] == 3


def test_a_search_that_was_stopped_goes_on(decided, monkeypatch):
    def search(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(decide, "search", search)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            convtune.optimize(Model().eval(), X, budget=30, progress=False)


def test_first_guesses_compete_before_a_search(decided, searched, monkeypatch):
    """Most of the gain is proven then, and an impatient Ctrl-C leaves it to the next call."""
    competed = []
    found = decide.search

    def search(*rest, **more):
        competed.append(len(decided["asked"]))
        return found(*rest, **more)

    monkeypatch.setattr(decide, "search", search)
    assert searches_of(searched, Model(), 60)[0] == 3
    assert competed[0] == 3


@pytest.mark.parametrize("second, gain", [(0.9, 0.9), (-0.1, 0.5)])
def test_what_was_proven_before_a_search_stays(decided, searched, monkeypatch, second, gain):
    """Unless what the search found is proven, too."""
    found = decide.search

    def search(*rest, **more):
        decided["layers"] = second
        return found(*rest, **more)

    monkeypatch.setattr(decide, "search", search)
    monkeypatch.setattr(decide._Task, "key", lambda task, _: f"{task.problem} {decided['layers']}")
    report = convtune.optimize(Model().eval(), X, budget=60, progress=False).convtune_report
    assert [(layer.swapped, layer.gain) for layer in report.layers if layer.problem] == [(True, gain)] * 3


def test_the_vendors_kernel_takes_nothing_back(decided, searched, monkeypatch):
    """A search that finds it best says nothing about a first guess that was proven against PyTorch."""
    choose = decide._Task.choose

    def choose_none(task):
        choose(task)
        task.way = None if searched["problems"] else task.way

    monkeypatch.setattr(decide._Task, "choose", choose_none)
    report = convtune.optimize(Model().eval(), X, budget=60, progress=False).convtune_report
    layers = [layer for layer in report.layers if layer.problem]
    assert all(layer.swapped and layer.decision.startswith("convtune") for layer in layers)
