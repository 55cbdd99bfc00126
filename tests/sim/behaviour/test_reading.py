"""Where a log begins and ends for whom, and what a fetch gives of it."""

from tests.sim.behaviour.bench import MONTH_MS, Bench

from twinlog.batch.scan import Aborted, batches
from twinlog.names import TopicPartition
from twinlog.wire import codes, ops
from twinlog.wire.cluster import Leader


async def test_offsets_of_an_empty_and_a_filled_log(bench: Bench) -> None:
    """Start, end and high watermark of a log without followers move together."""
    await bench.create()
    assert (await bench.start(), await bench.high_watermark(), await bench.end()) == (0, 0, 0)
    await bench.put(bench.batch(5))
    assert (await bench.start(), await bench.high_watermark(), await bench.end()) == (0, 5, 5)


async def test_at_the_edges_of_the_log(bench: Bench) -> None:
    """At the end there is nothing, beyond it and before the start the offset is out of range."""
    await bench.create()
    for _ in range(3):
        await bench.put(bench.batch(2))
    await ops.delete_records(bench.client, {bench.where: 3})
    assert [(await bench.read(at)).error for at in (6, 7, 2)] == [0, 1, 1]
    at_end = await bench.read(6)
    assert (len(at_end.records), at_end.high_watermark, at_end.log_start_offset) == (0, 6, 3)


async def test_a_fetch_gives_whole_batches(bench: Bench) -> None:
    """An offset within a batch gives the whole batch, and so does a limit below its size, though only one."""
    await bench.create()
    for _ in range(3):
        await bench.put(bench.batch(4))
    within = list(batches((await bench.read(5)).records))
    assert [b.base_offset for b in within] == [4, 8]
    small = list(batches((await bench.read(5, max_bytes=1)).records))
    assert [b.base_offset for b in small] == [4]


async def test_a_limit_cuts_the_last_batch(bench: Bench) -> None:
    """Bytes are cut where the limit is, in the middle of a batch."""
    await bench.create()
    for _ in range(3):
        await bench.put(bench.batch(4))
    size = next(batches((await bench.read()).records)).size
    chunk = await bench.read(max_bytes=size + size // 2)
    assert len(chunk.records) == size + size // 2
    assert len(list(batches(chunk.records))) == 1


async def test_the_log_start_moves(bench: Bench) -> None:
    """DeleteRecords moves the start, up to the high watermark and never back; a batch at the start is given whole."""
    await bench.create()
    for _ in range(3):
        await bench.put(bench.batch(4))
    told = await ops.delete_records(bench.client, {bench.where: 6})
    assert (told[bench.where].error, told[bench.where].offset) == (0, 6)
    assert await bench.start() == 6
    assert next(batches((await bench.read(6)).records)).base_offset == 4
    assert (await ops.delete_records(bench.client, {bench.where: 13}))[bench.where].error == codes.OFFSET_OUT_OF_RANGE
    assert (await ops.delete_records(bench.client, {bench.where: 2}))[bench.where].offset == 6
    assert (await ops.delete_records(bench.client, {bench.where: -1}))[bench.where].offset == 12
    assert (await bench.start(), await bench.end()) == (12, 12)


async def test_a_deleted_log_goes_on_where_it_ended(bench: Bench) -> None:
    """Offsets are never given twice, and producers are remembered when their batches are gone."""
    await bench.create()
    p = await bench.producer()
    await bench.send(4, p, 0, 0)
    await ops.delete_records(bench.client, {bench.where: -1})
    assert await bench.send(4, p, 0, 0) == (0, 0)
    assert await bench.send(1, p, 0, 4) == (0, 4)


async def test_records_of_a_compacted_topic_are_not_deleted(bench: Bench) -> None:
    """A topic whose only policy is compaction answers 44."""
    await bench.create(cleanup_policy="compact")
    await bench.put(bench.batch(2, key=b"k"))
    assert (await ops.delete_records(bench.client, {bench.where: 1}))[bench.where].error == codes.POLICY_VIOLATION


async def test_the_leader_epoch_has_to_be_right(bench: Bench) -> None:
    """A newer epoch than the leader's own is refused with 75: who asks knows more than this leader."""
    leader = await bench.create(replicas=3)
    newer = Leader(leader.node, leader.epoch + 1)
    chunk = await ops.read_log(
        bench.client, bench.where, 0, max_bytes=1000, read_committed=False, leader=newer, timeout_s=10
    )
    assert chunk.error == codes.UNKNOWN_LEADER_EPOCH
    request = ops.list_offsets_request({bench.where: (newer, ops.LATEST)}, replica_id=ops.DEBUGGER)
    answer = await bench.client.call(request, node=leader.node, max_version=9)
    assert ops.listed_offsets(answer)[bench.where].error == codes.UNKNOWN_LEADER_EPOCH


async def test_a_follower_tells_only_its_own_end(bench: Bench) -> None:
    """With replica id -2 a follower answers for its own log; what a consumer asks only the leader answers."""
    leader = await bench.create(replicas=3)
    await bench.put(bench.batch(3))
    follower = next(node for node in bench.client.brokers if node != leader.node)
    asked = {bench.where: (Leader(follower, leader.epoch), ops.LATEST)}
    debugging = ops.list_offsets_request(asked, replica_id=ops.DEBUGGER)
    answer = await bench.client.call(debugging, node=follower, max_version=9)
    assert ops.listed_offsets(answer)[bench.where].offset == 3
    consuming = ops.list_offsets_request(asked)
    answer = await bench.client.call(consuming, node=follower, max_version=9)
    assert ops.listed_offsets(answer)[bench.where].error == codes.NOT_LEADER_OR_FOLLOWER


async def test_an_offset_by_time(bench: Bench) -> None:
    """The first record at or behind a time, the newest record, and nothing where there is none."""
    await bench.create()
    await bench.put(bench.batch(2, age_ms=MONTH_MS))
    await bench.put(bench.batch(2))
    now_ms = bench.brokers.now_ms()

    async def at(time_ms: int) -> int:
        return await ops.one_offset(bench.client, bench.where, time_ms)

    assert [await at(1), await at(now_ms - MONTH_MS // 2), await at(now_ms + 60_000)] == [0, 2, -1]
    assert await at(ops.MAX_TIMESTAMP) == 2


async def test_what_is_unknown_is_named(bench: Bench) -> None:
    """An unknown topic is 3."""
    await bench.create()
    elsewhere = TopicPartition("no-such-topic", 0)
    chunk = await ops.read_log(
        bench.client,
        elsewhere,
        0,
        max_bytes=1000,
        read_committed=False,
        leader=await bench.client.find_leader(bench.where),
    )
    assert chunk.error == codes.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_reader_of_committed_records_waits_for_decisions(bench: Bench) -> None:
    """It gets nothing from where the first open transaction begins, and is told which ones were aborted."""
    await bench.create()
    name = bench.where.topic
    first = await ops.init_producer_id(bench.client, name)
    await bench.put(bench.batch(1))
    await ops.add_partitions(bench.client, name, first, [bench.where])
    open_batch = bench.batch(2, first.id, first.epoch, 0, transactional=True)
    assert await bench.put(open_batch, transactional_id=name) == (0, 1)
    await bench.put(bench.batch(1))
    chunk = await bench.read(committed=True)
    assert (chunk.high_watermark, chunk.last_stable_offset) == (4, 1)
    assert [b.base_offset for b in batches(chunk.records)] == [0]
    await ops.end_txn(bench.client, name, first, commit=False)
    await ops.init_producer_id(bench.client, name)
    chunk = await bench.read(committed=True)
    assert (chunk.high_watermark, chunk.last_stable_offset) == (5, 5)
    assert [b.base_offset for b in batches(chunk.records)] == [0, 1, 3, 4]
    assert chunk.aborted == (Aborted(first.id, 1),)
    assert (await bench.read(5, committed=True)).aborted == ()
