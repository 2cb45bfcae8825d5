"""The contest of optimize, on a simulated clock."""

import random

import pytest

from convtune import InternalError, InvalidArgument
from convtune._contest import contest


def race(gain, seed, noise=0.02):
    generator, clock = random.Random(seed), [1.0]

    def side(us):
        def run():
            clock[0] *= 1 + 0.0005 * generator.gauss(0, 1)  # drifts
            return us * clock[0] * (1 + abs(generator.gauss(0, noise)))

        return run

    return contest(side(100.0), side(100.0 * (1 - gain)), 0.02)


def test_equals_are_not_told_apart():
    assert sum(race(0.0, seed).accepted for seed in range(2000)) == 0


def test_a_gain_that_is_there_is_found():
    results = [race(0.06, seed) for seed in range(300)]
    assert sum(one.accepted for one in results) > 290
    assert all(one.low <= one.gain <= one.high for one in results)
    assert results[0].incumbent_us == pytest.approx(100, rel=0.2)


def test_a_gain_below_the_minimum_is_refused():
    assert sum(race(0.015, seed).accepted for seed in range(500)) == 0


def test_stops_late_and_early():
    assert race(0.5, 1).rounds == 10
    slow = contest(lambda: 1.0, lambda: 0.98, 0.0, max_seconds=0.0)
    assert slow.rounds == 10 and slow.accepted


def test_what_a_side_raises_is_raised():
    runs = []

    def fails():
        runs.append(len(runs))
        if len(runs) == 5:
            raise KeyboardInterrupt("here")
        return 1.0

    with pytest.raises(KeyboardInterrupt, match="here"):
        contest(lambda: 1.0, fails, 0.0)
    assert len(runs) == 5
    with pytest.raises(ValueError, match="soon"):
        contest(lambda: "soon", lambda: 1.0, 0.0)


def test_what_is_no_time_or_no_rule_is_refused():
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InternalError, match="challenger"):
            contest(lambda: 1.0, lambda wrong=wrong: wrong, 0.0)
    for rules in (dict(min_rounds=0), dict(max_rounds=9), dict(confidence=1.0), dict(max_seconds=float("nan"))):
        with pytest.raises(InvalidArgument, match="options: "):
            contest(lambda: 1.0, lambda: 1.0, 0.0, **rules)
    with pytest.raises(InvalidArgument, match="min_gain"):
        contest(lambda: 1.0, lambda: 1.0, 1.0)


def test_few_rounds_prove_nothing():
    found = contest(lambda: 2.0, lambda: 1.0, 0.0, min_rounds=1, max_rounds=2)
    assert not found.accepted and found.low == float("-inf") and found.high == float("inf") and found.rounds == 2
