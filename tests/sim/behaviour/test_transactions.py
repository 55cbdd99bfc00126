"""Transactional ids: who owns one, what fences whom, and which control records a transaction leaves."""

import asyncio

import pytest
from tests.sim.behaviour.bench import Bench

from twinlog.batch import layout
from twinlog.errors import GiveWay, PartitionFailed, TwinlogError
from twinlog.wire import codes, ops

TRANSACTION_ABORTABLE = 120


async def begin(bench: Bench, name: str) -> ops.Producer:
    """Become the owner of a transactional id, and add the partition to its transaction."""
    producer = await ops.init_producer_id(bench.client, name)
    await ops.add_partitions(bench.client, name, producer, [bench.where])
    return producer


async def controls(bench: Bench, *, count: int) -> list[tuple[int, int, int]]:
    """Offset, type and epoch of the control records, once there are so many and no more come."""
    async with asyncio.timeout(20):
        while True:
            found = [b for b in await bench.log() if b.control]
            if len(found) >= count:
                break
            await asyncio.sleep(0.1)
    await asyncio.sleep(0.5)
    found = [b for b in await bench.log() if b.control]
    markers = [(b, b.marker()) for b in found]
    return [(b.base_offset, marker.type, b.producer_epoch) for b, marker in markers if marker is not None]


@pytest.mark.parametrize("commit", [True, False])
async def test_a_transaction_leaves_one_marker(bench: Bench, commit: bool) -> None:  # noqa: FBT001  # parametrized
    """Its data, then one control record of its kind and epoch."""
    await bench.create()
    name = bench.where.topic
    producer = await begin(bench, name)
    for at in range(2):
        batch = bench.batch(2, producer.id, producer.epoch, 2 * at, transactional=True)
        assert await bench.put(batch, transactional_id=name) == (0, 2 * at)
    await ops.end_txn(bench.client, name, producer, commit=commit)
    kind = layout.COMMIT if commit else layout.ABORT
    assert await controls(bench, count=1) == [(4, kind, producer.epoch)]


async def test_an_empty_transaction_leaves_one_marker(bench: Bench) -> None:
    """A partition that was added and never written to gets its marker, too."""
    await bench.create()
    producer = await begin(bench, bench.where.topic)
    await ops.end_txn(bench.client, bench.where.topic, producer, commit=False)
    assert await controls(bench, count=1) == [(0, layout.ABORT, producer.epoch)]


async def test_the_next_owner_fences_the_former(bench: Bench) -> None:
    """After InitProducerId of another owner every use of the id under the older epoch fails."""
    await bench.create()
    name = bench.where.topic
    former = await ops.init_producer_id(bench.client, name)
    owner = await ops.init_producer_id(bench.client, name)
    assert (owner.id, owner.epoch) == (former.id, former.epoch + 1)
    with pytest.raises(GiveWay):
        await ops.add_partitions(bench.client, name, former, [bench.where])
    with pytest.raises(GiveWay):
        await ops.end_txn(bench.client, name, former, commit=True)
    with pytest.raises(GiveWay):
        await ops.init_producer_id(bench.client, name, producer=former)
    await ops.add_partitions(bench.client, name, owner, [bench.where])
    assert await bench.end() == 0


async def test_the_next_owner_aborts_what_was_open(bench: Bench) -> None:
    """The open transaction is aborted under a higher epoch, so that late data of it is refused."""
    await bench.create()
    name = bench.where.topic
    former = await begin(bench, name)
    batch = bench.batch(2, former.id, former.epoch, 0, transactional=True)
    assert await bench.put(batch, transactional_id=name) == (0, 0)
    owner = await ops.init_producer_id(bench.client, name)
    fence = former.epoch + 1
    assert (owner.id, owner.epoch) == (former.id, fence + 1)
    assert await controls(bench, count=1) == [(2, layout.ABORT, fence)]
    late = bench.batch(2, former.id, former.epoch, 2, transactional=True)
    assert (await bench.put(late, transactional_id=name))[0] == codes.INVALID_PRODUCER_EPOCH
    assert await bench.end() == 3


async def test_an_owner_may_ask_again(bench: Bench) -> None:
    """With its own id and epoch it gets the next epoch, and once more the same, should the answer be lost."""
    await bench.create()
    name = bench.where.topic
    first = await ops.init_producer_id(bench.client, name)
    second = await ops.init_producer_id(bench.client, name, producer=first)
    again = await ops.init_producer_id(bench.client, name, producer=first)
    assert second == again == (first.id, first.epoch + 1)
    third = await ops.init_producer_id(bench.client, name, producer=second)
    assert third.epoch == second.epoch + 1
    with pytest.raises(GiveWay):
        await ops.init_producer_id(bench.client, name, producer=first)


async def test_a_stranger_that_pretends_is_fenced(bench: Bench) -> None:
    """Another producer id than the id's own is refused with 90."""
    await bench.create()
    name = bench.where.topic
    first = await ops.init_producer_id(bench.client, name)
    with pytest.raises(GiveWay):
        await ops.init_producer_id(bench.client, name, producer=ops.Producer(first.id + 1, 0))


async def test_an_end_may_come_twice(bench: Bench) -> None:
    """The same end again is a success and leaves no marker more; the other one is refused, as is one of nothing."""
    await bench.create()
    name = bench.where.topic
    producer = await ops.init_producer_id(bench.client, name)
    with pytest.raises(PartitionFailed):
        await ops.end_txn(bench.client, name, producer, commit=True)
    await ops.add_partitions(bench.client, name, producer, [bench.where])
    await ops.end_txn(bench.client, name, producer, commit=True)
    await ops.end_txn(bench.client, name, producer, commit=True)
    with pytest.raises(PartitionFailed):
        await ops.end_txn(bench.client, name, producer, commit=False)
    assert await controls(bench, count=1) == [(0, layout.COMMIT, producer.epoch)]


async def test_only_what_was_added_may_be_written(bench: Bench) -> None:
    """Transactional data for a partition that is in no transaction is refused with 120 (KIP-890)."""
    await bench.create()
    name = bench.where.topic
    producer = await ops.init_producer_id(bench.client, name)
    batch = bench.batch(1, producer.id, producer.epoch, 0, transactional=True)
    assert (await bench.put(batch, transactional_id=name))[0] == TRANSACTION_ABORTABLE
    assert await bench.end() == 0


async def test_plain_data_within_a_transaction_is_refused(bench: Bench) -> None:
    """While a producer has a transaction open in a partition, its plain batches are refused with 48."""
    await bench.create()
    name = bench.where.topic
    producer = await begin(bench, name)
    batch = bench.batch(1, producer.id, producer.epoch, 0, transactional=True)
    assert await bench.put(batch, transactional_id=name) == (0, 0)
    assert (await bench.send(1, producer.id, producer.epoch, 1))[0] == codes.INVALID_TXN_STATE
    await ops.end_txn(bench.client, name, producer, commit=True)
    assert await controls(bench, count=1) == [(1, layout.COMMIT, producer.epoch)]
    assert await bench.send(1, producer.id, producer.epoch, 1) == (0, 2)


async def test_a_marker_from_outside_ends_a_transaction(bench: Bench) -> None:
    """A marker of the producer's own epoch ends what is open in the partition, whoever writes it."""
    await bench.create()
    name = bench.where.topic
    producer = await begin(bench, name)
    batch = bench.batch(2, producer.id, producer.epoch, 0, transactional=True)
    assert await bench.put(batch, transactional_id=name) == (0, 0)
    assert (await bench.read(committed=True)).last_stable_offset == 0
    assert await bench.mark(producer.id, producer.epoch) == 0
    chunk = await bench.read(committed=True)
    assert (chunk.last_stable_offset, chunk.aborted) == (3, ((producer.id, 0),))


async def test_an_unknown_owner_is_refused(bench: Bench) -> None:
    """Ids that nobody has begun to use are refused with 49."""
    await bench.create()
    with pytest.raises(TwinlogError, match="INVALID_PRODUCER_ID_MAPPING"):
        await ops.end_txn(bench.client, bench.where.topic, ops.Producer(1, 0), commit=True)


async def test_a_surplus_marker_shifts_what_is_behind(bench: Bench) -> None:
    """What a coordinator sends once more is appended once more: the reason for not using transactions for blanks."""
    await bench.create()
    name = bench.where.topic
    producer = await begin(bench, name)
    await ops.end_txn(bench.client, name, producer, commit=False)
    (_, _, epoch), *_ = await controls(bench, count=1)
    coordinator_epoch = (await bench.log())[0].marker()
    assert coordinator_epoch is not None
    assert await bench.mark(producer.id, epoch, coordinator_epoch=coordinator_epoch.coordinator_epoch) == 0
    assert await bench.end() == 2
