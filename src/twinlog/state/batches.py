"""Changes as transactional batches: bounded in size, compressed where that pays, in order within each shard. Pure."""

from collections.abc import Iterable, Sequence

from crc32c import crc32c

from twinlog.batch import layout
from twinlog.batch.records import Record as RawRecord
from twinlog.batch.records import encode as encode_batch
from twinlog.control.codec import encode
from twinlog.control.records import Change
from twinlog.control.sharding import partition_of

# Well below the least that max.message.bytes is by default (1 MiB), before compression.
BATCH_BYTES = 512 << 10

# Below this, compression saves nothing worth the time.
COMPRESS_FROM_BYTES = 1 << 10


def by_shard(
    changes: Iterable[Change], shards: int, *, timestamp_ms: int, batch_bytes: int = BATCH_BYTES
) -> dict[int, list[list[RawRecord]]]:
    """Sort changes into shards, and each shard's into runs that fit one batch; a larger record is a run of its own."""
    runs: dict[int, list[list[RawRecord]]] = {}
    sizes: dict[int, int] = {}
    for change in changes:
        shard = partition_of(change, shards)
        key, value = encode(change)
        size = len(key) + len(value or b"")
        shard_runs = runs.setdefault(shard, [[]])
        sizes[shard] = sizes.get(shard, 0) + size
        if sizes[shard] > batch_bytes and shard_runs[-1]:
            shard_runs.append([])
            sizes[shard] = size
        shard_runs[-1].append(RawRecord(len(shard_runs[-1]), timestamp_ms, key, value))
    return runs


def transactional(run: Sequence[RawRecord], *, producer_id: int, epoch: int, sequence: int) -> bytes:
    """One batch of a transaction: as `batch.edit.stamped` makes it, with the transactional bit set."""
    size = sum(len(record.key or b"") + len(record.value or b"") for record in run)
    batch = encode_batch(run, codec=layout.ZSTD if size >= COMPRESS_FROM_BYTES else layout.NO_CODEC)
    body = batch.raw[layout.HEADER_SIZE :]
    _, length, _, _, _, attributes, delta, base_time, max_time, _, _, _, count = batch.header
    summed = layout.CHECKSUMMED.pack(
        attributes | layout.TRANSACTIONAL_BIT, delta, base_time, max_time, producer_id, epoch, sequence, count
    )
    crc = crc32c(body, crc32c(summed))
    before = layout.BEFORE_CHECKSUM.pack(0, length, layout.NO_LEADER_EPOCH, layout.MAGIC_2, crc)
    return b"".join((before, summed, body))
