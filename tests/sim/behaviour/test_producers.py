"""What a partition's leader accepts of an idempotent producer, and what it recognises."""

import pytest
from tests.sim.behaviour.bench import MONTH_MS, Bench

from twinlog.batch import layout
from twinlog.wire import codes


async def test_each_of_the_last_five_batches_is_recognised(bench: Bench) -> None:
    """A batch that comes again is answered with the offset that it has, and is not appended again."""
    await bench.create()
    p = await bench.producer()
    sent = [await bench.send(2, p, 0, 2 * at) for at in range(6)]
    again = [await bench.send(2, p, 0, 2 * at) for at in range(1, 6)]
    assert sent == [(0, 2 * at) for at in range(6)]
    assert again == sent[1:]
    assert await bench.end() == 12


async def test_the_sixth_last_batch_is_refused(bench: Bench) -> None:
    """What is further back than five batches is taken for out of order."""
    await bench.create()
    p = await bench.producer()
    for at in range(6):
        await bench.send(1, p, 0, at)
    assert await bench.send(1, p, 0, 0) == (codes.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await bench.end() == 6


async def test_a_gap_or_another_cut_is_refused(bench: Bench) -> None:
    """A sequence must follow; the same sequences in other batches are not recognised."""
    await bench.create()
    p = await bench.producer()
    assert await bench.send(4, p, 0, 0) == (0, 0)
    refused = [await bench.send(1, p, 0, 5), await bench.send(2, p, 0, 0), await bench.send(2, p, 0, 2)]
    assert [code for code, _ in refused] == [codes.OUT_OF_ORDER_SEQUENCE_NUMBER] * 3
    assert await bench.send(1, p, 0, 4) == (0, 4)


async def test_a_new_epoch_begins_with_sequence_zero(bench: Bench) -> None:
    """A higher epoch shuts the lower ones out, duplicates of theirs too."""
    await bench.create()
    p = await bench.producer()
    assert await bench.send(3, p, 1, 0) == (0, 0)
    assert (await bench.send(1, p, 2, 3))[0] == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await bench.send(1, p, 4, 0) == (0, 3)
    assert (await bench.send(3, p, 1, 0))[0] == codes.INVALID_PRODUCER_EPOCH
    assert (await bench.send(1, p, 3, 0))[0] == codes.INVALID_PRODUCER_EPOCH
    assert await bench.end() == 4


async def test_an_unknown_producer_may_begin_anywhere(bench: Bench) -> None:
    """Of a producer that a partition does not know, any epoch and any sequence is the first."""
    await bench.create()
    p = await bench.producer()
    assert await bench.send(1, p, 7, 4_711) == (0, 0)
    assert (await bench.send(1, p, 7, 0))[0] == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await bench.send(1, p, 7, 4_712) == (0, 1)


async def test_sequences_go_round(bench: Bench) -> None:
    """Behind the highest sequence comes 0, also within a batch."""
    await bench.create()
    p = await bench.producer()
    assert await bench.send(3, p, 0, layout.MAX_SEQUENCE - 1) == (0, 0)
    assert await bench.send(1, p, 0, 1) == (0, 3)
    assert await bench.send(3, p, 0, layout.MAX_SEQUENCE - 1) == (0, 0)
    assert await bench.end() == 4


async def test_without_a_producer_everything_is_appended(bench: Bench) -> None:
    """Nothing tells two equal batches apart that have no producer."""
    await bench.create()
    batch = bench.batch(2)
    assert [await bench.put(batch) for _ in range(3)] == [(0, 0), (0, 2), (0, 4)]


async def test_producers_do_not_see_each_other(bench: Bench) -> None:
    """Each producer has its own sequences."""
    await bench.create()
    p, q = await bench.producer(), await bench.producer()
    assert await bench.send(1, p, 0, 0) == (0, 0)
    assert await bench.send(1, q, 0, 0) == (0, 1)
    assert await bench.send(1, p, 0, 0) == (0, 0)
    assert await bench.send(1, p, 0, 1) == (0, 2)


@pytest.mark.parametrize("acks", [1, -1])
async def test_old_records_let_a_producer_be_forgotten(bench: Bench, acks: int) -> None:
    """A producer's age is that of its last record's time: a month-old record is forgotten at once."""
    await bench.create()
    p = await bench.producer()
    assert await bench.send(1, p, 3, 0, age_ms=MONTH_MS, acks=acks) == (0, 0)
    await bench.until_forgotten(p)
    assert await bench.send(1, p, 3, 0, age_ms=MONTH_MS, acks=acks) == (0, 1)
    await bench.until_forgotten(p)
    assert await bench.send(1, p, 1, 99, acks=acks) == (0, 2)


async def test_a_fresh_record_is_remembered(bench: Bench) -> None:
    """Only the last record counts, however old those before it are."""
    await bench.create()
    p = await bench.producer()
    assert await bench.send(1, p, 0, 0, age_ms=MONTH_MS) == (0, 0)
    assert await bench.send(1, p, 0, 1) == (0, 1)
    await bench.past_a_check()
    assert await bench.send(1, p, 0, 1) == (0, 1)
    assert (await bench.send(1, p, 0, 7))[0] == codes.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_an_old_record_behind_a_fresh_one_is_forgotten(bench: Bench) -> None:
    """One old batch at the end switches the guard off, whatever came before."""
    await bench.create()
    p = await bench.producer()
    assert await bench.send(1, p, 0, 0) == (0, 0)
    assert await bench.send(1, p, 0, 1, age_ms=MONTH_MS) == (0, 1)
    await bench.until_forgotten(p)
    assert await bench.send(1, p, 0, 0) == (0, 2)


async def test_what_is_remembered_is_told(bench: Bench) -> None:
    """DescribeProducers tells epoch, last sequence and time of each producer."""
    await bench.create()
    p = await bench.producer()
    before_ms = bench.brokers.now_ms()
    await bench.send(3, p, 2, 0)
    told = await bench.remembered(p)
    assert told is not None
    assert (told.epoch, told.last_sequence, told.coordinator_epoch, told.txn_start_offset) == (2, 2, -1, -1)
    assert before_ms <= told.last_timestamp <= bench.brokers.now_ms()


async def test_a_batch_without_a_key_is_no_batch_of_a_compacted_topic(bench: Bench) -> None:
    """A compacted topic refuses records without keys."""
    await bench.create(cleanup_policy="compact")
    assert (await bench.put(bench.batch(2)))[0] == codes.INVALID_RECORD
    assert await bench.put(bench.batch(2, key=b"k")) == (0, 0)


async def test_damaged_and_oversized_batches_are_refused(bench: Bench) -> None:
    """A wrong checksum is 2, too many bytes are 10, and neither leaves anything in the log."""
    await bench.create(max_message_bytes="1000")
    damaged = bytearray(bench.batch(2))
    damaged[-1] ^= 1
    assert (await bench.put(bytes(damaged)))[0] == codes.CORRUPT_MESSAGE
    assert (await bench.put(bench.batch(500)))[0] == codes.MESSAGE_TOO_LARGE
    assert await bench.end() == 0
