"""The contest of optimize, on a simulated clock."""

import random

import pytest

from convtune._contest import contest, median_interval


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


def test_the_interval_holds_the_median():
    generator = random.Random(0)
    held = 0
    for _ in range(2000):
        low, high = median_interval([generator.expovariate(1) for _ in range(15)], 0.95)
        held += low <= 0.6931 <= high
    assert held >= 1900
    assert median_interval([1.0, 2.0], 0.99) == (float("-inf"), float("inf"))
