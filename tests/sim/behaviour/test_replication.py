"""High watermark, leaders that go, and what a new one knows."""

import asyncio

import pytest
from tests.sim.behaviour.bench import SESSION_S, Bench

from twinlog.wire import codes, ops
from twinlog.wire.cluster import Leader

FETCH_WAIT_S = 0.5  # replica.fetch.wait.max.ms


async def followers(bench: Bench) -> list[int]:
    """The replicas that do not lead."""
    part = (await bench.client.topics([bench.where.topic]))[bench.where.topic].partitions[0]
    return [node for node in part.replicas if node != part.leader]


async def pause_all(bench: Bench) -> list[int]:
    """Pause the followers, and wait until no question of theirs is left at the leader that it could answer.

    A busy machine also takes some milliseconds until all threads of a process have stopped.
    """
    paused = await followers(bench)
    for node in paused:
        await bench.brokers.pause(node)
    await asyncio.sleep(2 * FETCH_WAIT_S)
    return paused


async def end_at(bench: Bench, node: int, epoch: int) -> ops.ListedOffset:
    """The end of one replica's own log, as that broker tells it."""
    request = ops.list_offsets_request(
        {bench.where: (Leader(node, epoch), ops.LATEST)}, replica_id=ops.DEBUGGER, read_committed=False
    )
    answer = await bench.client.call(request, node=node, max_version=9)
    return ops.listed_offsets(answer)[bench.where]


async def test_the_high_watermark_waits_for_followers(bench: Bench) -> None:
    """With acks=1 the answer does not wait; readers and the high watermark do."""
    await bench.create(replicas=3)
    p = await bench.producer()
    assert await bench.send(2, p, 0, 0) == (0, 0)
    await bench.in_sync(3)
    paused = (await followers(bench))[0]
    await bench.brokers.pause(paused)
    await asyncio.sleep(2 * FETCH_WAIT_S)
    try:
        assert await bench.send(3, p, 0, 2, acks=1) == (0, 2)
        await asyncio.sleep(0.5)
        assert (await bench.high_watermark(), await bench.end()) == (2, 5)
        assert len((await bench.read(2)).records) == 0
    finally:
        await bench.brokers.resume(paused)
    await bench.in_sync(3)
    assert await bench.high_watermark() == 5


async def test_too_few_in_sync(bench: Bench) -> None:
    """Below min ISR acks=all and markers are refused with 19, acks=1 is taken; the high watermark stands."""
    await bench.create(replicas=3)
    p = await bench.producer()
    assert await bench.send(1, p, 0, 0) == (0, 0)
    await bench.in_sync(3)
    paused = await pause_all(bench)
    try:
        async with asyncio.timeout(SESSION_S * 4):
            code = 0
            while code != codes.NOT_ENOUGH_REPLICAS:
                code, _ = await bench.send(1, p, 0, 1)
        before = await bench.end()
        assert await bench.mark(p, 1) == codes.NOT_ENOUGH_REPLICAS
        code, offset = await bench.send(1, p, 2, 0, acks=1)
        assert (code, offset) == (0, before)
        await asyncio.sleep(0.5)
        assert (await bench.high_watermark(), await bench.end()) == (1, before + 1)
    finally:
        for node in paused:
            await bench.brokers.resume(node)
    await bench.in_sync(3)
    assert await bench.high_watermark() == before + 1


async def test_a_new_leader_lacks_what_was_not_replicated(bench: Bench) -> None:
    """What only the dead leader had is lost, and taken back from its log when it returns; the rest stays."""
    leader = await bench.create(replicas=3)
    p = await bench.producer()
    assert await bench.send(2, p, 0, 0) == (0, 0)
    await bench.in_sync(3)
    paused = await pause_all(bench)
    assert await bench.send(3, p, 0, 2, acks=1) == (0, 2)
    await bench.brokers.kill(leader.node)
    for node in paused:
        await bench.brokers.resume(node)
    successor = await bench.leader_other_than(leader.node)
    assert successor.epoch > leader.epoch
    assert await bench.end() == 2
    assert await bench.send(1, p, 0, 2) == (0, 2)
    await bench.brokers.start(leader.node)
    await bench.in_sync(3)
    assert await bench.end() == 3
    now = await bench.client.find_leader(bench.where, refresh=True)
    told = await end_at(bench, leader.node, now.epoch)
    assert (told.error, told.offset) == (0, 3)
    assert [b.count for b in await bench.log()] == [2, 1]


async def test_a_new_leader_recognises_what_it_has_replicated(bench: Bench) -> None:
    """Producers are remembered by followers as by leaders: five batches, epochs, and coordinator epochs."""
    leader = await bench.create(replicas=3)
    p, q = await bench.producer(), await bench.producer()
    for at in range(6):
        await bench.send(1, p, 3, at)
    await bench.mark(q, 4, coordinator_epoch=7)
    await bench.in_sync(3)
    await bench.brokers.kill(leader.node)
    await bench.leader_other_than(leader.node)
    try:
        assert [await bench.send(1, p, 3, at) for at in range(1, 6)] == [(0, at) for at in range(1, 6)]
        assert (await bench.send(1, p, 3, 0))[0] == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await bench.mark(q, 3, coordinator_epoch=7) == codes.INVALID_PRODUCER_EPOCH
        assert await bench.mark(q, 4, coordinator_epoch=6) == codes.TRANSACTION_COORDINATOR_FENCED
        assert await bench.end() == 7
    finally:
        await bench.brokers.start(leader.node)
    await bench.in_sync(3)


@pytest.mark.parametrize("kill", [True, False])
async def test_a_broker_that_is_back_remembers_the_last_batch(bench: Bench, kill: bool) -> None:  # noqa: FBT001  # parametrized
    """After any end only the last batch of each producer is recognised: a snapshot holds no more."""
    leader = await bench.create(replicas=1)
    p, q = await bench.producer(), await bench.producer()
    for at in range(3):
        await bench.send(1, p, 0, at)
    await bench.mark(q, 4, coordinator_epoch=7)
    await (bench.brokers.kill(leader.node) if kill else bench.brokers.stop(leader.node))
    await bench.brokers.start(leader.node)
    await bench.in_sync(1)
    assert await bench.send(1, p, 0, 2) == (0, 2)
    assert (await bench.send(1, p, 0, 1))[0] == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await bench.mark(q, 3, coordinator_epoch=7) == codes.INVALID_PRODUCER_EPOCH
    assert await bench.mark(q, 4, coordinator_epoch=6) == codes.TRANSACTION_COORDINATOR_FENCED
    assert await bench.send(1, p, 0, 3) == (0, 4)


async def test_a_follower_that_took_back_its_end_knows_what_is_left(bench: Bench) -> None:
    """A former leader whose tail is gone judges by what remains, once it leads again."""
    leader = await bench.create(replicas=3)
    p = await bench.producer()
    for at in range(6):
        await bench.send(1, p, 0, at)
    await bench.in_sync(3)
    paused = await pause_all(bench)
    assert await bench.send(2, p, 1, 0, acks=1) == (0, 6)
    await bench.brokers.kill(leader.node)
    for node in paused:
        await bench.brokers.resume(node)
    await bench.leader_other_than(leader.node)
    await bench.brokers.start(leader.node)
    await bench.in_sync(3)
    assert await bench.end() == 6
    told = await ops.elect_leaders(bench.client, [bench.where])
    assert told[bench.where] in {0, codes.ELECTION_NOT_NEEDED}
    await bench.led_by(leader.node)
    assert await bench.send(1, p, 0, 5) == (0, 5)
    assert await bench.send(1, p, 0, 6) == (0, 6)


async def test_a_zombie_does_not_know_the_new_epoch(bench: Bench) -> None:
    """A leader that was paused takes what is sent under its own epoch, and refuses who knows better with 75."""
    leader = await bench.create(replicas=3)
    await bench.put(bench.batch(2))
    await bench.in_sync(3)
    await bench.brokers.pause(leader.node)
    successor = await bench.leader_other_than(leader.node)
    assert await bench.put(bench.batch(1)) == (0, 2)
    await bench.brokers.resume(leader.node)
    told = await end_at(bench, leader.node, successor.epoch)
    assert told.error in {0, codes.UNKNOWN_LEADER_EPOCH}
    assert told.error or told.offset <= 3
    await bench.in_sync(3)
    assert (await end_at(bench, leader.node, (await bench.client.find_leader(bench.where)).epoch)).offset == 3
