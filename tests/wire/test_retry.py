"""Waits between attempts, and their bound."""

from hypothesis import given
from hypothesis import strategies as st

from twinlog.wire.retry import Attempts, Backoff


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        """Begin somewhere."""
        self.now_s = 1000.0
        self.slept: list[float] = []

    def clock(self) -> float:
        """Read the clock."""
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        """Move the clock."""
        self.slept.append(seconds)
        self.now_s += seconds


def attempts(time: FakeTime, bound_s: float) -> Attempts:
    """Attempts that never wait for real."""
    return Attempts(bound_s, clock=time.clock, sleep=time.sleep, spread=lambda: 0.0)


def test_waits_double_up_to_the_maximum() -> None:
    """The waits are first, twice first, and so on, and then stay."""
    backoff = Backoff(0.1, 1.0)
    assert [backoff.wait_s(n, 0.0) for n in range(7)] == [0.0, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@given(st.integers(1, 10**9), st.floats(0, 1))
def test_a_wait_is_never_zero_nor_above_the_maximum(failures: int, spread: float) -> None:
    """However many failures, the wait lies between half the first one and the maximum: no tight loop, no overflow."""
    assert 0.05 <= Backoff(0.1, 2.0).wait_s(failures, spread) <= 2.0


async def test_attempts_end_within_their_bound() -> None:
    """A series that always fails ends before its bound, with growing waits in between."""
    time = FakeTime()
    series = attempts(time, 5.0)
    while await series.again():
        pass
    assert time.now_s - 1000.0 <= 5.0
    assert time.slept == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert series.failures == 6


async def test_what_is_left_is_shared_out() -> None:
    """An attempt may take its own bound or what is left, but never less than it needs to have a chance."""
    time = FakeTime()
    series = attempts(time, 5.0)
    assert series.share_s(2.0) == 2.0
    time.now_s += 4.0
    assert series.share_s(2.0) == 1.0
    time.now_s += 9.0
    assert series.left_s == 0.0
    assert series.share_s(2.0) == 0.5
