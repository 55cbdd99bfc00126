"""Control records written directly with WriteTxnMarkers: the blanks of a twin."""

from tests.sim.behaviour.bench import MONTH_MS, Bench

from twinlog.batch import layout
from twinlog.names import TopicPartition
from twinlog.wire import codes, ops
from twinlog.wire.produce import MarkerRun


async def test_each_marker_takes_one_offset(bench: Bench) -> None:
    """However often a marker of the same epoch comes, it is appended each time."""
    await bench.create()
    p = await bench.producer()
    assert [await bench.mark(p, 5) for _ in range(3)] == [0, 0, 0]
    assert await bench.mark(p, 5, 200) == 0
    assert await bench.end() == 203
    log = await bench.log()
    assert {(b.count, b.control, b.transactional, b.producer_id, b.producer_epoch) for b in log} == {
        (1, True, True, p, 5)
    }
    assert {b.marker() for b in log} == {(layout.ABORT, 0)}


async def test_a_lower_epoch_is_refused(bench: Bench) -> None:
    """A marker below the producer's epoch is not written."""
    await bench.create()
    p = await bench.producer()
    assert await bench.mark(p, 5) == 0
    assert await bench.mark(p, 4) == codes.INVALID_PRODUCER_EPOCH
    await bench.send(1, p, 6, 0)
    assert await bench.mark(p, 5) == codes.INVALID_PRODUCER_EPOCH
    assert await bench.end() == 2


async def test_a_higher_epoch_shuts_out_what_came_before(bench: Bench) -> None:
    """Behind a marker data of lower epochs is refused, duplicates too; of its own epoch it begins with sequence 0."""
    await bench.create()
    p = await bench.producer()
    assert await bench.send(2, p, 0, 0) == (0, 0)
    assert await bench.mark(p, 1) == 0
    assert (await bench.send(2, p, 0, 0))[0] == codes.INVALID_PRODUCER_EPOCH
    assert (await bench.send(1, p, 0, 2))[0] == codes.INVALID_PRODUCER_EPOCH
    assert (await bench.send(1, p, 1, 2))[0] == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await bench.send(1, p, 2, 2))[0] == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await bench.send(1, p, 1, 0) == (0, 3)


async def test_an_equal_epoch_leaves_the_sequence_alone(bench: Bench) -> None:
    """A marker of the data's own epoch changes nothing for the data behind it, and duplicates are still recognised."""
    await bench.create()
    p = await bench.producer()
    assert await bench.send(2, p, 3, 0) == (0, 0)
    assert await bench.mark(p, 3) == 0
    assert await bench.send(2, p, 3, 0) == (0, 0)
    assert (await bench.send(1, p, 3, 0))[0] == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await bench.send(1, p, 3, 2) == (0, 3)


async def test_a_coordinator_epoch_must_not_fall(bench: Bench) -> None:
    """A marker of a coordinator that is older than the last one's is refused with 52."""
    await bench.create()
    p = await bench.producer()
    assert await bench.mark(p, 0, coordinator_epoch=3) == 0
    assert await bench.mark(p, 1, coordinator_epoch=2) == codes.TRANSACTION_COORDINATOR_FENCED
    assert await bench.mark(p, 1, coordinator_epoch=3) == 0
    assert await bench.mark(p, 1, coordinator_epoch=9) == 0
    assert [b.marker() for b in await bench.log()] == [(layout.ABORT, 3), (layout.ABORT, 3), (layout.ABORT, 9)]


async def test_data_does_not_touch_the_coordinator_epoch(bench: Bench) -> None:
    """It is remembered across data of the same producer."""
    await bench.create()
    p = await bench.producer()
    await bench.mark(p, 0, coordinator_epoch=3)
    await bench.send(1, p, 1, 0)
    assert await bench.mark(p, 2, coordinator_epoch=2) == codes.TRANSACTION_COORDINATOR_FENCED


async def test_readers_see_nothing_of_markers(bench: Bench) -> None:
    """They begin no transaction and end none, and no reader is told of an aborted one."""
    await bench.create()
    p = await bench.producer()
    await bench.send(1, p, 0, 0)
    await bench.mark(p, 1, 3)
    await bench.send(1, p, 2, 0)
    chunk = await bench.read(committed=True)
    assert (chunk.high_watermark, chunk.last_stable_offset, chunk.aborted) == (5, 5, ())


async def test_the_last_of_several_markers_speaks_for_all(bench: Bench) -> None:
    """Results of one producer id are merged: those that failed before the last are not told."""
    leader = await bench.create()
    p = await bench.producer()
    await bench.mark(p, 4)
    low = MarkerRun(bench.where.topic, 0, p, 3, 2)
    high = MarkerRun(bench.where.topic, 0, p, 4, 1)
    assert (await ops.write_markers(bench.client, leader.node, [low, high]))[bench.where] == 0
    assert (await ops.write_markers(bench.client, leader.node, [high, low]))[bench.where] == 47
    assert await bench.end() == 3


async def test_who_does_not_lead_says_so(bench: Bench) -> None:
    """A follower answers 6, a broker without a replica, or of an unknown topic, 3."""
    leader = await bench.create(replicas=2)
    told = (await bench.client.topics([bench.where.topic]))[bench.where.topic].partitions[0]
    follower = next(node for node in told.replicas if node != leader.node)
    stranger = next(node for node in bench.client.brokers if node not in told.replicas)
    assert await bench.mark(1, 0, node=follower) == codes.NOT_LEADER_OR_FOLLOWER
    assert await bench.mark(1, 0, node=stranger) == codes.UNKNOWN_TOPIC_OR_PARTITION
    nowhere = MarkerRun("no-such-topic", 0, 1, 0, 1)
    answer = await ops.write_markers(bench.client, leader.node, [nowhere])
    assert answer == {TopicPartition("no-such-topic", 0): codes.UNKNOWN_TOPIC_OR_PARTITION}


async def test_a_marker_makes_an_old_producer_fresh(bench: Bench) -> None:
    """A marker bears the broker's own time, so a producer of month-old data is remembered behind it."""
    await bench.create()
    p = await bench.producer()
    await bench.send(1, p, 0, 0, age_ms=MONTH_MS)
    await bench.mark(p, 1)
    await bench.past_a_check()
    told = await bench.remembered(p)
    assert told is not None
    assert (told.epoch, told.last_sequence, told.coordinator_epoch) == (1, -1, 0)
    assert (await bench.send(1, p, 1, 5))[0] == codes.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_markers_are_forgotten_in_their_time(bench: Bench) -> None:
    """After the expiration a lower epoch is accepted again."""
    await bench.create()
    p = await bench.producer()
    assert await bench.mark(p, 7, 3) == 0
    assert await bench.mark(p, 6) == codes.INVALID_PRODUCER_EPOCH
    await bench.until_forgotten(p)
    assert await bench.mark(p, 0) == 0
    assert await bench.end() == 4
