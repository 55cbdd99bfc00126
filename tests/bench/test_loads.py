"""The loads hold what they say."""

import pytest
from bench.loads import HOT_KEY, LOADS, Load

from twinlog.batch.records import decode
from twinlog.batch.view import Batch


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_a_batch_has_the_records_and_sizes_of_its_load(load: Load) -> None:
    """So many records a batch, each about as large as the load says."""
    batch = Batch(memoryview(load.made()[0]))
    records = decode(batch)
    assert len(records) == batch.count == load.batch_records
    assert batch.codec == load.codec
    sizes = [len(record.key or b"") + len(record.value or b"") for record in records]
    assert all(load.record_bytes - 30 < size <= load.record_bytes for size in sizes)


def test_compressed_values_can_be_compressed() -> None:
    """Random bytes would leave nothing for a codec to do."""
    plain, packed = LOADS["standard"].made(), LOADS["lz4"].made()
    assert len(packed[0]) < 0.75 * len(plain[0])


def test_batches_differ_and_are_the_same_in_each_run() -> None:
    """All contestants mirror the same data, in which nothing repeats within a megabyte."""
    load = LOADS["small"]
    one, two = ([bytes(Batch(memoryview(raw)).body) for raw in load.made()] for _ in range(2))
    assert [body[:200] for body in one] == [body[:200] for body in two]
    assert len(set(one)) == len(one)


def test_in_a_compacted_load_one_key_in_ten_comes_once() -> None:
    """The others are one key, of which compaction leaves the last."""
    load = LOADS["compacted"]
    values = [b""] * load.batch_records
    keys = [r.key for turn in range(20) for r in decode(Batch(memoryview(load.batch(0, turn, values))))]
    single = [key for key in keys if key != HOT_KEY]
    assert len(single) == len(set(single)) == len(keys) // load.keep_one_in
