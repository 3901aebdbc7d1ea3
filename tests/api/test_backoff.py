"""Pauses between attempts, under a time that passes only while a caller sleeps or works."""

import time
from itertools import islice

import pytest

from penstock._backoff import attempts, pauses


class Clock:
    """A time, and the pauses that were made in it."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    return clock


def test_pauses_are_twice_as_long_each_time_up_to_the_longest() -> None:
    assert list(islice(pauses(), 9)) == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert list(islice(pauses(0.5, 4.0), 6)) == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]


def test_the_first_attempt_and_one_at_the_end_are_made_and_none_after_it(clock: Clock) -> None:
    at = [round(clock.now - 1_000, 3) for _ in attempts(5.0)]
    assert at == [0.0, 0.1, 0.3, 0.7, 1.5, 3.1, 5.0]
    assert max(clock.slept) <= 2.0


def test_without_time_there_is_one_attempt_and_no_pause(clock: Clock) -> None:
    assert len(list(attempts(0.0))) == 1
    assert clock.slept == []


def test_the_time_that_an_attempt_takes_counts(clock: Clock) -> None:
    turns = 0
    for _ in attempts(5.0):
        turns += 1
        clock.now += 3.0
    assert (turns, clock.slept) == (2, [0.1])
