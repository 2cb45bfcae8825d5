"""bench/step_answers.py: what it says of a step's gradients and losses; the processor's side of one, by bench/step_host.py, and turns on
equal processors, by bench/turns.py; and the memory of a call, by bench/torch_model_numbers.py."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import torch_model_numbers  # noqa: E402
from step_answers import compared, gradients_of, without_chance  # noqa: E402
import turns  # noqa: E402
from step_host import functions_of, times_of, together  # noqa: E402


def _answers(noise: float, seed: int, edit=lambda gradients: None, loss: float = 2.0):
    torch.manual_seed(0)
    gradients = [torch.randn(300), torch.randn(40) * 1e-3, None]
    torch.manual_seed(seed)
    gradients = [one if one is None else one + noise * one.norm() / len(one) ** 0.5 * torch.randn_like(one) for one in gradients]
    edit(gradients)
    return {"gradients": gradients, "losses": [2.0, loss]}


@pytest.mark.parametrize(
    ("edit", "loss", "agree"),
    [
        (lambda gradients: None, 2.0, True),
        (lambda gradients: gradients[0].mul_(1.1), 2.0, False),
        (lambda gradients: gradients[1].zero_(), 2.0, False),  # a thousandth of all: found by its own norm
        (lambda gradients: gradients[0][:3].fill_(float("nan")), 2.0, False),
        (lambda gradients: gradients.__setitem__(0, None), 2.0, False),
        (lambda gradients: None, 2.1, False),
        (lambda gradients: None, float("nan"), False),
    ],
)
def test_an_answer_is_held_to_the_errors_of_pytorchs_ways(edit, loss, agree) -> None:
    answers = {"exact": _answers(0, 1), "eager": _answers(0.02, 2), "compiled": _answers(0.02, 3), "backend": _answers(0.02, 4, edit, loss)}
    found = compared(answers, ("eager", "compiled"))
    assert found["backend"]["agree"] is agree, found
    assert found["eager"]["agree"] and found["compiled"]["agree"]


def test_gradients_are_samples_and_chance_is_off() -> None:
    model = without_chance(torch.nn.Sequential(torch.nn.Linear(400, 300), torch.nn.Dropout(0.5)))
    x = torch.randn(4, 400)
    assert torch.equal(model(x), model(x))
    model(x).sum().backward()
    weight, bias = gradients_of(model)
    assert 40_000 <= weight.numel() <= 1 << 16 and bias.numel() == 300


def test_the_memory_of_graphs_is_counted(monkeypatch):
    """A replay allocates nothing: what its pool keeps beside what is allocated is a way's, too."""
    pools = [(0, 0), (0, 1), (1, 0)]
    segments = [{"segment_pool_id": pool, "total_size": 8 << 20, "allocated_size": 2 << 20} for pool in pools]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name, answer in (("reset_peak_memory_stats", None), ("synchronize", None), ("max_memory_allocated", 10 << 20), ("memory_snapshot", segments)):
        monkeypatch.setattr(torch.cuda, name, lambda answer=answer: answer)
    assert torch_model_numbers.peak_mib(lambda: None) == 22


def test_what_kernels_do_at_the_same_time_counts_once():
    """A kernel that begins early waits within its own time for the one before; one that is idle before it has waited for the processor."""
    events = [("first", 0, 30), ("adds up", 2, 33), ("within", 5, 20), ("first", 40, 50), ("next call", 200, 210)]
    found = torch_model_numbers.counted(events[::-1])
    assert found == {"first": (2, 40, 7), "adds up": (1, 3, 0), "within": (1, 0, 0), "next call": (1, 10, 0)}


def test_turns_of_the_processor_are_put_together():
    of_both = [{"loop": [2.0, 1.0], "forward": [1.0, 2.0, 3.0]}, {"loop": [3.0], "forward": [4.0, 5.0]}]
    found = together(of_both)
    assert found == {"ms": {"forward": 3.0}, "loop, ms": 2.0, "slowest turn": 3.0}


def test_turns_are_on_the_same_processors(monkeypatch):
    """Turns share processors where a GPU is the device; and each says what its processors are like."""
    held = []
    monkeypatch.setattr(turns.os, "sched_getaffinity", lambda of: {9, 3, 5, 4, 7, 6})
    monkeypatch.setattr(turns.os, "sched_setaffinity", lambda thread, to: held.append((thread, to)))
    monkeypatch.setattr(turns.sys, "stdin", ["time\n", "kernels\n"])
    turn = object.__new__(turns.Turn)
    assert list(turn.asked(held=False)) == ["time", "kernels"] and not held
    assert next(turn.asked(held=True)) == "time"
    assert (turns.os.getpid(), [3, 4, 5, 6]) in held and {str(to) for _, to in held} == {"[3, 4, 5, 6]"}
    assert turns.loop_ms() > 0


def test_parts_of_a_step_are_the_processors():
    """A part is as long as it keeps the caller; what is waited for behind the last is the device's."""
    waits = []

    def step(passed):
        passed("forward")
        passed("backward")

    found = times_of(step, lambda: waits.append(1))
    steps = len(found["forward"])
    assert list(found) == ["loop", "forward", "backward", "device"] and len(waits) == 2 * steps and len(found["device"]) == steps
    assert all(ms >= 0 for part in found.values() for ms in part)


def test_functions_of_backward_are_seen():
    """In the thread that is profiled."""
    weight = torch.ones(4, requires_grad=True)

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            return seen_in_backward(grad)

    def seen_in_backward(grad):
        return 2 * grad

    rows = functions_of(lambda passed: Doubled.apply(weight).sum().backward())
    assert [row[0] for row in rows if row[2].endswith("seen_in_backward")] == [1.0]
