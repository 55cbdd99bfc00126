"""Transactional batches of changes: what they hold, how large they are, and what a broker checks of them."""

import random

from hypothesis import given
from hypothesis import strategies as st

from twinlog.batch import layout
from twinlog.batch.records import decode as decode_batch
from twinlog.batch.scan import batches
from twinlog.batch.view import Batch
from twinlog.control.codec import decode, encode
from twinlog.control.lifecycle import PartitionState
from twinlog.control.records import Change, MirrorRecord, PartitionRecord, ShardRecord, Tombstone
from twinlog.control.sharding import partition_of
from twinlog.state.batches import BATCH_BYTES, by_shard, transactional


def read(data: bytes) -> Batch:
    """The one batch in some bytes, checksum and structure checked."""
    (batch,) = batches(memoryview(data))
    assert isinstance(batch, Batch)
    return batch


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=40), st.integers(1, 20))
def test_changes_are_sorted_into_their_shards_in_order(names: list[tuple[str, int]], shards: int) -> None:
    """Each change lands once, in its own shard, in the order given."""
    changes = [
        PartitionRecord(name, "t", n, PartitionState.PAUSED, retry_attempt=at) for at, (name, n) in enumerate(names)
    ]
    runs = by_shard(changes, shards, timestamp_ms=5, batch_bytes=600)
    for shard, shard_runs in runs.items():
        written = [decode(record.key, record.value) for run in shard_runs for record in run]
        assert written == [change for change in changes if partition_of(change, shards) == shard]
        assert [[record.offset for record in run] for run in shard_runs] == [
            list(range(len(run))) for run in shard_runs
        ]
    assert sum(len(run) for shard_runs in runs.values() for run in shard_runs) == len(changes)


def test_runs_are_bounded() -> None:
    """No run is larger than a batch may be, except a single record that is; no run is empty."""
    sizes = [100, 200_000, 400_000, 100, BATCH_BYTES + 5, 100]
    runs = by_shard([MirrorRecord("m", {"x": "y" * size}, "") for size in sizes], 1, timestamp_ms=5)[0]
    assert [len(run) for run in runs] == [2, 2, 1, 1]


def test_a_batch_is_transactional_and_whole() -> None:
    """Producer, epoch, sequence, times and the transactional bit are set; the records come back."""
    changes: list[Change] = [ShardRecord(0, "w"), Tombstone(("shard", 0))]
    (run,) = by_shard(changes, 1, timestamp_ms=123)[0]
    batch = read(transactional(run, producer_id=7, epoch=3, sequence=11))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, 11)
    assert (batch.base_offset, batch.count, batch.codec) == (0, 2, layout.NO_CODEC)
    assert batch.transactional
    assert not batch.control
    assert batch.max_timestamp == 123
    assert [decode(record.key, record.value) for record in decode_batch(batch)] == changes


def test_large_batches_are_compressed() -> None:
    """Figures of thousands of partitions shrink to a fraction; small records are left as they are."""
    change = MirrorRecord("m", {str(n): "value" for n in range(2000)}, "")
    (run,) = by_shard([change], 1, timestamp_ms=1)[0]
    data = transactional(run, producer_id=1, epoch=0, sequence=0)
    assert read(data).codec == layout.ZSTD
    assert len(data) < len(encode(change)[1] or b"") / 3
    (record,) = decode_batch(read(data))
    assert decode(record.key, record.value) == change


def test_incompressible_records_pass() -> None:
    """Noise larger than a batch is still one batch, for the broker to judge."""
    change = MirrorRecord("m", {"x": random.Random(1).randbytes(BATCH_BYTES).hex()}, "")
    (run,) = by_shard([change], 1, timestamp_ms=1)[0]
    assert len(run) == 1
    assert len(decode_batch(read(transactional(run, producer_id=1, epoch=0, sequence=0)))) == 1
