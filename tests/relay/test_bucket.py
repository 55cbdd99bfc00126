"""A rate kept by counting."""

from twinlog.relay.bucket import BURST_S, Bucket

RATE = 1_000_000


def _sent(sizes: list[int], *, until: float, change: tuple[float, int] | None = None) -> int:
    """What a busy sender gets through until then; the rate may change at a time."""
    bucket, now, sent, at = Bucket(), 100.0, 0, 0
    while now < 100.0 + until:
        rate = change[1] if change is not None and now >= 100.0 + change[0] else RATE
        wait_s = bucket.wait_s(now, rate)
        if wait_s > 0:
            now += min(wait_s, 0.5)
            continue
        size = sizes[at % len(sizes)]
        bucket.take(size)
        sent, at = sent + size, at + 1
    return sent


def test_rate_is_held_over_ten_seconds() -> None:
    """Within a tenth, with small and large batches in turn."""
    assert 0.9 * 10 * RATE < _sent([100, 60_000, 400_000], until=10.0) < 1.1 * 10 * RATE


def test_batch_larger_than_a_second_goes_and_is_paid_off() -> None:
    """It is not refused for ever, and what follows waits for as long as it takes to pay."""
    bucket = Bucket()
    assert bucket.wait_s(0.0, RATE) == 0.0
    bucket.take(5 * RATE)
    assert abs(bucket.wait_s(0.0, RATE) - (5 - BURST_S)) < 0.01
    assert bucket.wait_s(5.0, RATE) == 0.0


def test_pause_saves_up_no_more_than_the_burst() -> None:
    """An hour of silence is not made up for."""
    bucket = Bucket()
    bucket.wait_s(0.0, RATE)
    bucket.wait_s(3600.0, RATE)
    bucket.take(int(BURST_S * RATE) + RATE)
    assert abs(bucket.wait_s(3600.0, RATE) - 1.0) < 0.01


def test_changed_rate_counts_at_once() -> None:
    """Half of the time at ten times the rate."""
    assert 0.9 < _sent([10_000], until=10.0, change=(5.0, 10 * RATE)) / (55 * RATE) < 1.1
