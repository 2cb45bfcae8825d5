"""Outcomes of contests with PyTorch that other processes held: taken while everything that they depend on is the same."""

import json

import pytest
from torch_support import torch

import convtune
from convtune._contest import Contest
from convtune.torch.graph import chains
from convtune.torch.measure import contests, decide

nn = torch.nn
X = torch.rand(2, 3, 12, 12)
OUTCOME = Contest(True, 0.5, 0.4, 0.6, 100.0, 50.0, 10)


@pytest.fixture
def held(monkeypatch):
    """The contests of layers that were held so far."""
    calls = []

    def contest(incumbent, challenger, min_gain, **_):
        calls.append((incumbent(), challenger()))
        return OUTCOME

    monkeypatch.setattr(decide, "contest", contest)
    return calls


def another_process(monkeypatch):
    contests._known.clear()
    chains._decided.clear()


def layers_of(model, min_gain=0.02):
    convtune.optimize(model, X, budget=0, min_gain=min_gain, progress=False)
    found = model.convtune_report.layers
    convtune.restore(model)
    return found


def test_the_next_process_takes_them(held, monkeypatch):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1)).eval()
    first = layers_of(model)
    count = len(held)
    assert count == 2
    another_process(monkeypatch)
    assert [vars(one) for one in layers_of(model)] == [vars(one) for one in first]
    assert len(held) == count


@pytest.mark.parametrize("change", [
    lambda monkeypatch: monkeypatch.setattr(torch, "__version__", "1.0"),
    lambda monkeypatch: monkeypatch.setattr(contests, "_own_hash", lambda: "another"),
    lambda monkeypatch: monkeypatch.setattr(torch.backends.cudnn, "benchmark", not torch.backends.cudnn.benchmark),
    lambda monkeypatch: monkeypatch.setattr(torch, "get_num_threads", lambda: 77),
    lambda monkeypatch: monkeypatch.setattr(decide, "fingerprint", lambda device: "another GPU"),
    lambda monkeypatch: contests._file().write_text('{"key": "cut sho'),
], ids=["PyTorch", "the library", "cudnn.benchmark", "threads", "the device", "a broken file"])  # fmt: skip
def test_they_are_held_again_where_something_has_changed(held, monkeypatch, change):
    model = nn.Conv2d(3, 8, 3).eval()
    layers_of(model)
    another_process(monkeypatch)
    change(monkeypatch)
    layers_of(model)
    assert len(held) == 2


def test_what_was_only_disturbed_is_held_again(held, monkeypatch):
    for outcome, again in ((Contest(False, 0.01, -0.5, 0.5, 100.0, 99.0, 10), 1), (Contest(False, 0.0, -0.1, 0.01), 0)):
        monkeypatch.setattr(decide, "contest", lambda *_, outcome=outcome, **__: held.append(1) or outcome)
        contests.forget()
        model = nn.Conv2d(3, 8, 3).eval()
        layers_of(model)
        before = len(held)
        layers_of(model)
        assert len(held) == before + again


def test_another_gain_is_another_contest(held):
    model = nn.Conv2d(3, 8, 3).eval()
    layers_of(model), layers_of(model, 0.3), layers_of(model, 0.3)
    assert len(held) == 2


def test_what_is_no_outcome_is_not_taken(monkeypatch):
    contests.keep("a", OUTCOME)
    contests.keep("b", Contest(False, 0.1, -float("inf"), float("inf"), 1.0, 2.0, 3))
    own = contests._file()
    rows = [json.loads(line) for line in own.read_text().splitlines()]
    rows += [{**rows[0], "key": "c", "incumbent_us": float("nan")}, {"key": "d"}, 7]
    own.write_text("\n".join(map(json.dumps, rows)) + "\n\xff\n")
    another_process(monkeypatch)
    assert contests.recall("a") == OUTCOME
    assert contests.recall("b").low == -float("inf")
    assert [contests.recall(key) for key in "cd"] == [None, None]


def test_nowhere_to_keep_them(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CONVTUNE_DATA_DIR", str(tmp_path / "file"))
    contests.keep("a", OUTCOME)
    assert contests.recall("a") == OUTCOME
    contests._known.clear()


def test_the_largest_budget_counts_whoever_had_it(monkeypatch):
    contests.keep_number("a", 30.0)
    own = contests._file()
    with open(own, "a") as file:  # another process
        file.write('{"key": "a", "number": 20.0}\n{"key": "b", "number": 7}\n{"key": "c", "number": "x"}\n')
    assert [contests.recall_number(key) for key in "abc"] == [30.0, 7.0, 0.0]
    contests.keep("d", OUTCOME)
    another_process(monkeypatch)
    assert [contests.recall_number(key) for key in "abcd"] == [30.0, 7.0, 0.0, 0.0]
    assert contests.recall("a") is None and contests.recall("d") == OUTCOME
