"""What one record of the log is taken for, and how a broker's answer is read."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from twinlog.batch.records import Record as RawRecord
from twinlog.control.codec import encode
from twinlog.control.records import Change, MirrorRecord, ShardRecord, Tombstone
from twinlog.control.sharding import partition_of
from twinlog.errors import BadInput, TwinlogError, UnsupportedVersion
from twinlog.names import TopicPartition
from twinlog.state.batches import by_shard, transactional
from twinlog.state.fetch import Piece, fetch, understood
from twinlog.state.topic import STATE_TOPIC
from twinlog.wire.cluster import Cluster, Leader
from twinlog.wire.leaders import Answer

ZERO = TopicPartition(STATE_TOPIC, 0)


def raw(change: Change, offset: int = 17) -> RawRecord:
    """A change as it stands in the log."""
    return RawRecord(offset, 0, *encode(change))


def test_a_record_of_its_shard_is_understood() -> None:
    """Records and tombstones come out as they were written."""
    record = ShardRecord(3, "w")
    assert understood(3, raw(record), 50) == record
    assert understood(3, raw(Tombstone(record.key)), 50) == Tombstone(record.key)


@pytest.mark.parametrize(
    ("record", "error", "text"),
    [
        (raw(ShardRecord(4, "w")), BadInput, "another partition"),
        (RawRecord(17, 0, b"junk", b"{}"), BadInput, "not JSON"),
        (RawRecord(17, 0, b'["comet"]', b"{}"), UnsupportedVersion, "newer twinlog"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_place(
    record: RawRecord, error: type[TwinlogError], text: str
) -> None:
    """Partition and offset are named; the tombstone with the same key clears it and does nothing itself."""
    with pytest.raises(error, match=f"^__mirror_state-3 at offset 17: .*{text}"):
        understood(3, record, 50)
    assert understood(3, record._replace(value=None), 50) in {None, Tombstone(("comet",))}


def answered(**partition: Any) -> Any:
    """A Fetch response of one partition."""
    told = {
        "partition_index": 0,
        "error_code": 0,
        "last_stable_offset": 9,
        "aborted_transactions": None,
        "records": None,
    } | partition
    return SimpleNamespace(
        error_code=0, responses=[SimpleNamespace(topic=STATE_TOPIC, partitions=[SimpleNamespace(**told)])]
    )


def fetched(response: Any, position: int = 0) -> dict[TopicPartition, Answer[Piece]]:
    """Fetch from a broker that gives this response."""

    class Fake:
        async def call(self, request: Any, **options: Any) -> Any:
            assert request.isolation_level == 1
            assert options["node"] == 1
            return response

    async def run() -> dict[TopicPartition, Answer[Piece]]:
        cluster = cast("Cluster", Fake())
        asked = {ZERO: (Leader(1, 4), position)}
        return await fetch(cluster, 1, asked, lane="x", max_wait_ms=10, timeout_s=1.0)

    return asyncio.run(run())


CHANGES = [ShardRecord(0, name) for name in "abc"]
BATCH = transactional(by_shard(CHANGES, 1, timestamp_ms=5)[0][0], producer_id=7, epoch=0, sequence=0)


def test_committed_records_from_the_position_on() -> None:
    """Records before the position, which share a batch with it, are left out."""
    answer = fetched(answered(records=BATCH), position=1)[ZERO]
    assert answer.error == 0
    assert answer.value is not None
    assert [record.offset for record in answer.value.records] == [1, 2]
    assert answer.value.next_offset == 3


def test_aborted_records_are_passed_over() -> None:
    """A transaction that the response lists as aborted moves the position and yields nothing."""
    aborted = [SimpleNamespace(producer_id=7, first_offset=0)]
    assert fetched(answered(records=BATCH, aborted_transactions=aborted))[ZERO] == Answer(0, Piece((), 3))


def test_what_is_not_decided_yet_is_not_read() -> None:
    """A batch beyond the last stable offset waits, and so does the position."""
    assert fetched(answered(records=BATCH, last_stable_offset=2))[ZERO] == Answer(0, Piece((), 0))


def test_codes_are_values() -> None:
    """A partition's code is its answer; a response's code is that of all its partitions; others are left out."""
    assert fetched(answered(error_code=6)) == {ZERO: Answer(6)}
    assert fetched(SimpleNamespace(error_code=70, responses=[])) == {ZERO: Answer(70)}
    assert fetched(answered(partition_index=1)) == {}


def test_mirrors_lie_where_they_belong() -> None:
    """The check of the place uses the same hash as the writer."""
    record = MirrorRecord("m", {}, "")
    assert understood(partition_of(record, 50), raw(record), 50) == record
