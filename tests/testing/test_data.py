"""Made-up records are the same for the same seed, and of the sizes that they claim."""

import random

from twinlog.testing.data import MAX_LONG, NOW, YEAR_9999_MS, Maker, TopicFacts, _record_bytes

FACTS = TopicFacts(partitions=3, max_batch_bytes=100_000, max_ahead_ms=MAX_LONG, compacted=False)


def maker(seed: int = 1, facts: TopicFacts = FACTS) -> Maker:
    """A maker with a seed."""
    return Maker(random.Random(seed), facts)


def test_the_same_seed_makes_the_same_records() -> None:
    """Keys, values and headers repeat with the seed, and differ with another."""
    first, second = maker(), maker()
    one = [first.record() for _ in range(50)]
    assert [(m.key, m.value, m.headers) for m in one] == [
        (m.key, m.value, m.headers) for m in (second.record() for _ in range(50))
    ]
    assert one[0] != maker(2).record()


def test_edges_hold_all_combinations_of_null_and_empty() -> None:
    """Null, empty and present keys and values each meet; a compacted topic gets no null key."""
    combinations = {(m.key, m.value) for m in maker().edges()}
    assert len(combinations) == 9
    compacted = TopicFacts(partitions=1, max_batch_bytes=1000, max_ahead_ms=MAX_LONG, compacted=True)
    assert None not in {m.key for m in maker(facts=compacted).edges()}


def test_the_largest_record_fills_a_batch_to_the_byte() -> None:
    """Header and record together have exactly the limit, at the borders of the length fields too."""
    for limit in (200, 8_300, 100_000, 1_048_588):
        facts = TopicFacts(partitions=1, max_batch_bytes=limit, max_ahead_ms=MAX_LONG, compacted=False)
        made = maker(facts=facts).largest()
        assert made.key is not None
        assert made.value is not None
        assert 61 + _record_bytes(made.key, len(made.value)) == limit


def test_timestamps_reach_from_none_to_the_far_future() -> None:
    """None, 1 and the far future all occur; what librdkafka would replace by now never does."""
    one = maker()
    times = {one.timestamp_ms() for _ in range(500)}
    assert {-1, 1} <= times
    assert max(times) > YEAR_9999_MS // 2
    assert NOW not in times
