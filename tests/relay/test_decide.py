"""What `relay.decide` makes of each thing that a source can answer."""

from typing import Any

import pytest
from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder

from twinlog.batch.records import decode
from twinlog.batch.scan import Blank
from twinlog.errors import PartitionFailed, RefreshLeader, TakeOverAnew
from twinlog.relay.decide import DIVERGED, Stopped, Terms, decide, forwarded
from twinlog.relay.progress import Fail, FetchRefused, Forward, Nudge, Realign, Refetch, Stop

TERMS = Terms()


def test_data_is_forwarded_in_order(made: Any) -> None:
    """Two whole batches are two items, and the source is read on behind them."""
    chunk = made.chunk(100, made.data(100), made.data(103, 2))
    verdict = decide(made.progress(), chunk, TERMS)
    assert isinstance(verdict, Forward)
    assert [item.base_offset for item in verdict.items] == [100, 103]
    assert verdict.next_offset == 105


def test_hole_between_batches_is_a_blank(made: Any) -> None:
    """Offsets that no batch has are filled."""
    verdict = decide(made.progress(), made.chunk(100, made.data(100), made.data(110)), TERMS)
    assert isinstance(verdict, Forward)
    assert verdict.items[1] == Blank(103, 109)


def test_nothing_new_is_an_empty_forward(made: Any) -> None:
    """A long poll that ran out says nothing."""
    verdict = decide(made.progress(), made.chunk(100, last_stable_offset=100, high_watermark=100), TERMS)
    assert verdict == Forward((), 100)


def test_open_transaction_holds_what_is_behind_it(made: Any) -> None:
    """Up to the last stable offset and no further, though the high watermark is ahead."""
    verdict = decide(made.progress(), made.chunk(100, last_stable_offset=100, high_watermark=900), TERMS)
    assert verdict == Forward((), 100)


def test_conclusive_emptiness_is_a_blank_up_to_the_stable_offset(made: Any) -> None:
    """Where the broker would have sent a batch if there were one, the log's end is a hole."""
    verdict = decide(made.progress(), made.chunk(100, last_stable_offset=150), TERMS)
    assert verdict == Forward((Blank(100, 149),), 150)


def test_inconclusive_emptiness_says_nothing(made: Any) -> None:
    """A partition that other partitions starved in the response has no hole."""
    verdict = decide(made.progress(), made.chunk(100, last_stable_offset=150, conclusive=False), TERMS)
    assert verdict == Forward((), 100)


def test_emptiness_is_not_believed_where_it_may_mean_something_else(made: Any) -> None:
    """A read from tiered storage that was given up looks like a hole; nothing may be blanked for it."""
    chunk = made.chunk(100, last_stable_offset=150)
    verdict = decide(made.progress(), chunk, Terms(trust_emptiness=False))
    assert isinstance(verdict, Refetch)
    assert "tiered" in verdict.reason


def test_cut_first_batch_is_fetched_again(made: Any) -> None:
    """Bytes without a whole batch must not end the fetching."""
    verdict = decide(made.progress(), made.chunk(100, made.data(100)[:-5]), TERMS)
    assert isinstance(verdict, Refetch)


def test_other_position_than_asked_realigns(made: Any) -> None:
    """A stale answer is never appended."""
    assert isinstance(decide(made.progress(99), made.chunk(100, made.data(100)), TERMS), Realign)


def test_log_start_beyond_the_position_realigns(made: Any) -> None:
    """Retention overtook: the takeover says how much is lost."""
    assert isinstance(decide(made.progress(), made.chunk(100, log_start_offset=101), TERMS), Realign)


def test_corrupt_batch_fails_with_its_offset(made: Any) -> None:
    """A flipped byte is named and nothing of the chunk is forwarded."""
    bad = bytearray(made.data(103))
    bad[-1] ^= 1
    verdict = decide(made.progress(), made.chunk(100, made.data(100), bytes(bad)), TERMS)
    assert isinstance(verdict, Fail)
    assert "103" in verdict.reason
    assert not verdict.retriable


def test_blank_without_the_right_fails_before_it(made: Any) -> None:
    """What stands before the blank goes on; the blank itself names the right that is missing."""
    terms = Terms(may_blank=False)
    chunk = made.chunk(100, made.data(100), made.data(110))
    first = decide(made.progress(), chunk, terms)
    assert isinstance(first, Forward)
    assert [item.base_offset for item in first.items] == [100]
    assert first.next_offset == 103
    verdict = decide(made.progress(103), made.chunk(103, made.data(110)), terms)
    assert isinstance(verdict, Fail)
    assert verdict.retriable
    assert "CLUSTER_ACTION" in verdict.reason
    assert "103" in verdict.reason


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, Realign),
        (3, Realign),
        (100, Realign),
        (103, Realign),
        (29, Fail),
        (DIVERGED, Fail),
        (6, Refetch),
        (-1, Refetch),
    ],
)
def test_each_refusal_has_its_consequence(made: Any, code: int, kind: type) -> None:
    """Refetch for the leader's troubles, Realign where the log moved, Fail where an operator is needed."""
    assert isinstance(decide(made.progress(), FetchRefused(code, "55"), TERMS), kind)


def test_divergence_is_not_retried_and_names_the_offset(made: Any) -> None:
    """A truncated source stops the partition for good."""
    verdict = decide(made.progress(), FetchRefused(DIVERGED, "55"), TERMS)
    assert isinstance(verdict, Fail)
    assert not verdict.retriable
    assert "55" in verdict.reason


def test_nudges(made: Any) -> None:
    """Without a surprise: stop; with one: read the destination's log."""
    assert decide(made.progress(), Nudge(), TERMS) == Stop()
    assert decide(made.progress(), Nudge("moved"), TERMS) == Realign("moved")


@pytest.mark.parametrize(
    ("verdict", "error"),
    [(Refetch("r"), RefreshLeader), (Realign("r"), TakeOverAnew), (Fail("r"), PartitionFailed), (Stop(), Stopped)],
)
def test_what_is_not_forward_becomes_the_error_for_the_caller(verdict: Any, error: type[Exception]) -> None:
    """The pump has no branches: a verdict that ends its turning is an error."""
    with pytest.raises(error):
        forwarded(verdict)


def test_batch_that_begins_below_the_position_is_trimmed(made: Any) -> None:
    """A takeover in the middle of a batch goes on at the record that is missing."""
    verdict = decide(made.progress(101), made.chunk(101, made.data(100)), TERMS)
    assert isinstance(verdict, Forward)
    (batch,) = verdict.items
    assert (batch.base_offset, batch.count) == (101, 2)
    assert verdict.next_offset == 103


def test_stamped_by_the_source_broker_becomes_create_time(made: Any) -> None:
    """Records of a LogAppendTime batch keep the broker's stamp as their own time."""
    raw = bytearray(made.data(100, 2, timestamp=5))
    raw[22] |= 0x08
    raw[35:43] = (777).to_bytes(8, "big")
    verdict = decide(made.progress(), made.chunk(100, _sealed(raw)), TERMS)
    assert isinstance(verdict, Forward)
    (batch,) = verdict.items
    assert not batch.log_append_time
    assert [record.timestamp for record in decode(batch)] == [777, 777]


def test_hole_inside_a_batch_splits_it_around_blanks(made: Any) -> None:
    """A compacted batch becomes contiguous pieces with the missing offsets blank between them and behind them."""
    holed = _holed({102, 104})
    verdict = decide(made.progress(), made.chunk(100, holed, made.data(107)), TERMS)
    assert isinstance(verdict, Forward)
    assert _shapes(verdict) == [
        ("data", 100, 101),
        ("blank", 102, 102),
        ("data", 103, 103),
        ("blank", 104, 106),
        ("data", 107, 109),
    ]


def test_position_in_the_hole_at_a_batchs_end_is_filled(made: Any) -> None:
    """A takeover behind a batch's last record goes on with the blanks that are missing."""
    verdict = decide(made.progress(104), made.chunk(104, _holed({103, 104})), TERMS)
    assert isinstance(verdict, Forward)
    assert _shapes(verdict) == [("blank", 104, 104)]
    assert verdict.next_offset == 105


def test_hole_inside_a_batch_needs_the_right_too(made: Any) -> None:
    """Without the right for markers the batch's first piece goes on, and the hole fails."""
    verdict = decide(made.progress(), made.chunk(100, _holed({102})), Terms(may_blank=False))
    assert isinstance(verdict, Forward)
    assert _shapes(verdict) == [("data", 100, 101)]
    assert verdict.next_offset == 102


def _shapes(verdict: Forward) -> list[tuple[str, int, int]]:
    return [
        ("blank", item.first, item.last) if isinstance(item, Blank) else ("data", item.base_offset, item.last_offset)
        for item in verdict.items
    ]


def _sealed(raw: bytearray) -> bytes:
    raw[17:21] = crc32c(bytes(raw[21:])).to_bytes(4, "big")
    return bytes(raw)


def _holed(missing: set[int]) -> bytes:
    """What Kafka's cleaner leaves of offsets 100 to 104: same base and last offset, fewer records."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=99_999,
    )
    for offset in sorted({100, 101, 102, 103, 104} - missing):
        builder.append(offset - 100, 5, b"k", b"v", [])
    raw = bytearray(builder.build())
    raw[0:8] = (100).to_bytes(8, "big")
    raw[23:27] = (4).to_bytes(4, "big")
    return _sealed(raw)
