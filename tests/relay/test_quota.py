"""What is learnt of a quota; broker and clock are played by the test."""

import random

import pytest

from twinlog.relay.quota import FIRST_BYTES, LEAST_BYTES, LONGEST_S, PAUSE_S, Quota

CEILING = 4 * 1_048_576


class Throttling:
    """A broker with a quota in bytes a second, whose mean is over `window_s` (`ClientQuotaManager`)."""

    def __init__(self, rate: int, window_s: float) -> None:
        self.rate, self.window_s = rate, window_s
        self.sent: list[tuple[float, int]] = []

    def throttle_ms(self, now: float, size: int) -> int:
        """For how long an answer of so many bytes throttles."""
        self.sent = [(at, one) for at, one in self.sent if at > now - self.window_s] + [(now, size)]
        mean = sum(one for _, one in self.sent) / self.window_s
        return int(max(0.0, (mean - self.rate) / self.rate * self.window_s) * 1000)


def test_begins_small_and_soon_allows_all() -> None:
    """Answers that make use of what is allowed bring more of it; nothing is ever waited for."""
    quota = Quota(CEILING)
    assert quota.most_bytes == FIRST_BYTES
    for _ in range(4):
        quota.answered(0, 0.0, size=quota.most_bytes)
    assert (quota.most_bytes, quota.wait_s(0.0), quota.throttled_ms) == (CEILING, 0.0, 0)


def test_small_answers_ask_for_no_more() -> None:
    """What is not made use of is no sign that more would be allowed."""
    quota = Quota(CEILING)
    quota.answered(0, 0.0, size=100)
    assert quota.most_bytes == FIRST_BYTES


def test_throttle_is_waited_for_and_makes_requests_smaller() -> None:
    """A second's pause is four times too long; one that comes while another lasts makes that no shorter."""
    quota = Quota(CEILING)
    quota.answered(1_000, 10.0, size=FIRST_BYTES)
    assert (quota.most_bytes, quota.wait_s(10.0), quota.wait_s(11.0)) == (int(FIRST_BYTES * PAUSE_S), 1.0, 0.0)
    quota.answered(100, 10.0, size=FIRST_BYTES)
    assert (quota.wait_s(10.0), quota.throttled_ms, quota.most_bytes) == (1.0, 1_100, LEAST_BYTES)
    assert repr(quota) == "Quota(65536 bytes at a time, throttled for 1.1 s so far)"


def test_bounds_are_kept() -> None:
    """Neither the longest pause nor a ceiling below the least size leads outside."""
    quota = Quota(CEILING)
    quota.answered(600_000, 0.0, size=0)
    assert quota.most_bytes == LEAST_BYTES
    tiny = Quota(1_000)
    tiny.answered(600_000, 0.0, size=1_000)
    assert tiny.most_bytes == 1_000


def test_a_long_pause_is_told_once_a_minute() -> None:
    """A short one is how a quota works."""
    quota = Quota(CEILING)
    quota.answered(900, 10.0, size=0)
    assert quota.to_tell_s(10.0) == 0.0
    quota.answered(5_000, 10.0, size=0)
    assert (quota.to_tell_s(11.0), quota.to_tell_s(12.0)) == (4.0, 0.0)
    quota.answered(100_000, 20.0, size=0)
    assert (quota.to_tell_s(70.0), quota.to_tell_s(71.0)) == (0.0, 49.0)


def test_a_pause_beyond_all_measure_is_not_believed() -> None:
    """A partition must not stand still for weeks by one answer."""
    quota = Quota(CEILING)
    quota.answered(2**31 - 1, 0.0, size=0)
    assert quota.wait_s(0.0) == LONGEST_S
    assert quota.throttled_s == LONGEST_S


@pytest.mark.parametrize("rate", [100_000, 1_000_000, 10_000_000])
@pytest.mark.parametrize("window_s", [2.0, 10.0])
def test_rate_is_used_with_short_pauses(rate: int, window_s: float) -> None:
    """Some time behind the first burst all that the broker allows is used, and no pause is long."""
    quota, broker, rng = Quota(CEILING), Throttling(rate, window_s), random.Random(1)
    now, got, longest_s, begun = 0.0, 0, 0.0, 10 * window_s
    while now < begun + 20.0:
        now += quota.wait_s(now) + rng.uniform(0.0005, 0.002)
        size = quota.most_bytes
        quota.answered(broker.throttle_ms(now, size), now, size=size)
        if now > begun:
            got += size
            longest_s = max(longest_s, quota.wait_s(now))
    assert got / (now - begun) > 0.9 * rate
    assert longest_s < max(4 * PAUSE_S, 3 * LEAST_BYTES / rate)
