"""What a fetcher asks a source broker for, and what it makes of the answers."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any, cast
from uuid import UUID

import pytest
from tests.relay.fetch_broker import Broker

from twinlog.batch.records import Record, encode
from twinlog.names import TopicPartition
from twinlog.relay import fetch as fetch_module
from twinlog.relay import fetch_session
from twinlog.relay.budget import Budget
from twinlog.relay.fetch import Fetcher, FetchSettings
from twinlog.relay.inbox import Inbox, tail_of
from twinlog.relay.progress import Chunk, FetchRefused
from twinlog.wire.cluster import Cluster

A, B, C = (TopicPartition("orders", n) for n in range(3))
ID = UUID(int=7)
WITHIN_S = 5.0


class Reading:
    """A fetcher at work, and a pump's part: taking out of inboxes."""

    def __init__(self, broker: Broker, *, budget: Budget | None = None, **settings: Any) -> None:
        self.broker = broker
        known = {"wait_max_ms": 20, "backoff_ms": 10}
        self.budget = budget or Budget(32 << 20)
        self.fetcher = Fetcher(
            cast("Cluster", broker),
            1,
            client_id="test",
            settings=FetchSettings(**(known | settings)),
            share=self.budget.share(),
        )
        self.task = asyncio.create_task(self.fetcher.run())

    def subscribe(self, where: TopicPartition, position: int = 0, *, topic_id: UUID | None = ID) -> Inbox:
        """As `Source.subscribe` does."""
        inbox = Inbox(where, position, budget=self.fetcher.share, topic_id=topic_id, leader_epoch=4)
        self.fetcher.add(inbox)
        return inbox

    async def rounds(self, count: int) -> list[Any]:
        """Wait for so many more requests, and return those."""
        before = len(self.broker.requests)
        async with asyncio.timeout(WITHIN_S):
            while len(self.broker.requests) < before + count:
                self.broker.asked.clear()
                await self.broker.asked.wait()
        return self.broker.requests[before : before + count]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    """A broker with three empty logs; whatever reads from it ends with the test."""
    broker = Broker()
    for where in (A, B, C):
        broker.add(where)
    yield broker
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


def batch(first: int, count: int = 3, *, size: int = 1) -> bytes:
    """A batch of `count` records."""
    records = [Record(first + n, 1_000_000, b"k", bytes(size), ()) for n in range(count)]
    return bytes(encode(records, codec=0).raw)


def named(request: Any) -> list[tuple[int, int]]:
    """Which partitions a request names, and from which offset."""
    return [(part.partition, part.fetch_offset) for topic in request.topics for part in topic.partitions]


def forgotten(request: Any) -> list[int]:
    """Which partitions a request gives up."""
    return [part for topic in request.forgotten_topics_data for part in topic.partitions]


async def got(inbox: Inbox) -> Any:
    """The next value of an inbox."""
    async with asyncio.timeout(WITHIN_S):
        return await inbox.get()


async def test_quiet_partitions_cost_an_empty_request(broker: Broker) -> None:
    """The first request names everyone, later ones nobody, at the pace of the wait that is asked for."""
    reading = Reading(broker)
    for where in (A, B, C):
        reading.subscribe(where)
    first, *later = await reading.rounds(4)
    assert named(first) == [(0, 0), (1, 0), (2, 0)]
    assert [named(request) for request in later] == [[], [], []]
    assert len({request.session_id for request in later}) == 1
    assert [request.session_epoch for request in later] == [1, 2, 3]


async def test_only_who_moved_is_named(broker: Broker) -> None:
    """With its new position and the epoch of what was read last."""
    reading = Reading(broker)
    inboxes = [reading.subscribe(where) for where in (A, B, C)]
    await reading.rounds(2)
    broker.append(B, batch(0), 3)
    chunk = await got(inboxes[1])
    assert (chunk.position, chunk.high_watermark, chunk.last_stable_offset) == (0, 3, 3)
    await reading.rounds(2)
    assert [named(request) for request in broker.requests if named(request)][1:] == [[(1, 3)]]


async def test_figures_of_a_quiet_partition_stay_fresh(broker: Broker) -> None:
    """What a session does not name is as it was, as of now."""
    reading = Reading(broker)
    inbox = reading.subscribe(A)
    await reading.rounds(2)
    before = inbox.figures.told_at
    await reading.rounds(3)
    assert inbox.figures.told_at > before
    assert inbox.figures.high_watermark == 0


async def test_throttled_answer_makes_no_figure_fresh(broker: Broker) -> None:
    """A broker over its quota answers with nothing, whatever there is; the session goes on."""
    reading = Reading(broker)
    inbox = reading.subscribe(A)
    await reading.rounds(3)
    broker.throttled = 1000
    await reading.rounds(2)
    before = inbox.figures.told_at
    await reading.rounds(2)
    assert inbox.figures.told_at == before
    broker.throttled = 0
    broker.append(A, batch(0), 3)
    assert (await got(inbox)).position == 0


async def test_receive_buffer_is_raised_on_each_connection(broker: Broker) -> None:
    """As large as the mirror's configs say."""
    reading = Reading(broker, receive_buffer_bytes=1 << 20)
    reading.subscribe(A)
    await reading.rounds(2)
    assert broker.receive_buffer == 1 << 20


async def test_throttled_fetcher_asks_for_nothing_meanwhile(broker: Broker) -> None:
    """The broker reads nothing of the connection until the time is over, so that asking would only pile up."""
    reading = Reading(broker)
    inbox = reading.subscribe(A)
    await reading.rounds(3)
    broker.throttle_ms, broker.throttled = 1_500, 1
    broker.append(A, batch(0), 3)
    await asyncio.sleep(0.2)
    before = len(broker.requests)
    await asyncio.sleep(0.3)
    assert len(broker.requests) == before
    assert (await got(inbox)).position == 0
    assert reading.fetcher.quota.throttled_ms == 1_500


async def test_throttled_first_answer_opens_no_session(broker: Broker) -> None:
    """Everything is asked for again."""
    broker.throttled = 1
    reading = Reading(broker)
    reading.subscribe(A)
    first, second, third = await reading.rounds(3)
    assert (named(first), named(second), named(third)) == ([(0, 0)], [(0, 0)], [])


@pytest.mark.parametrize("lose", ["forget", "epoch"])
async def test_lost_session_begins_anew_at_once(broker: Broker, lose: str) -> None:
    """Nobody is refused and nothing waits: the next request is a full one."""
    reading = Reading(broker, wait_max_ms=20)
    inbox = reading.subscribe(A)
    reading.subscribe(B)
    await reading.rounds(2)
    if lose == "forget":
        broker.forget_sessions()
    else:
        broker.sessions = {number: (epoch + 5, asked) for number, (epoch, asked) in broker.sessions.items()}
    requests = await reading.rounds(4)
    full = [request for request in requests if request.session_epoch == 0]
    assert [(request.session_id, named(request)) for request in full] == [(0, [(0, 0), (1, 0)])]
    broker.append(A, batch(0), 3)
    assert isinstance(await got(inbox), Chunk)


@pytest.mark.parametrize(("slots", "version"), [(0, 17), (10, 6)])
async def test_broker_without_a_session_is_asked_for_everything(slots: int, version: int) -> None:
    """No slot is free, or it is older than sessions."""
    broker = Broker(slots=slots, version=version)
    broker.add(A)
    broker.add(B)
    reading = Reading(broker)
    inboxes = [reading.subscribe(where) for where in (A, B)]
    assert [named(request) for request in await reading.rounds(3)] == [[(0, 0), (1, 0)]] * 3
    broker.append(A, batch(0), 3)
    broker.append(B, batch(0), 3)
    assert [(await got(inbox)).position for inbox in inboxes] == [0, 0]


async def test_full_partition_is_forgotten_until_it_has_room(broker: Broker) -> None:
    """Nothing more of it comes into memory; the others go on, and it joins again where it stands."""
    reading = Reading(broker)
    inbox, other = reading.subscribe(A), reading.subscribe(B)
    for at in range(5):
        broker.append(A, batch(at, 1, size=70_000), 1)
    reading.fetcher._settings = FetchSettings(wait_max_ms=20, partition_max_bytes=80_000)
    await reading.rounds(8)
    assert not inbox.has_room
    assert any(forgotten(request) == [0] for request in broker.requests)
    assert inbox.position == 2
    broker.append(B, batch(0), 3)
    assert (await got(other)).position == 0
    assert [(await got(inbox)).position for _ in range(5)] == [0, 1, 2, 3, 4]


async def test_short_waits_while_somebody_has_no_room(broker: Broker) -> None:
    """The broker must not hold the connection for long, and is not asked in a frenzy either."""
    reading = Reading(broker, wait_max_ms=500, partition_max_bytes=80_000)
    inbox = reading.subscribe(A)
    reading.subscribe(B)
    for at in range(3):
        broker.append(A, batch(at, 1, size=70_000), 1)
    await reading.rounds(8)
    assert not inbox.has_room
    waits = [request.max_wait_ms for request in await reading.rounds(4)]
    assert max(waits) <= 40
    assert waits == sorted(waits)


async def test_error_is_handed_on_and_the_partition_left_out(broker: Broker) -> None:
    """One partition's trouble is no other's, and it is not asked for again until it subscribes anew."""
    reading = Reading(broker)
    inbox, other = reading.subscribe(A), reading.subscribe(B)
    await reading.rounds(2)
    broker.logs[A].error = 6
    broker.wake()
    assert await got(inbox) == FetchRefused(6, "NOT_LEADER_OR_FOLLOWER")
    await reading.rounds(3)
    assert sum(forgotten(request) == [0] for request in broker.requests) == 1
    broker.append(B, batch(0), 3)
    assert (await got(other)).position == 0


async def test_partition_without_a_leader_makes_no_tight_loop(broker: Broker) -> None:
    """Its subscriber comes back at once and is refused each time: requests stay bounded, the others are served."""
    reading = Reading(broker, wait_max_ms=500)
    other = reading.subscribe(B)
    broker.logs[A].error = 6
    loop = asyncio.get_running_loop()
    began, before = loop.time(), len(broker.requests)
    while loop.time() - began < 1.0:
        inbox = reading.subscribe(A)
        assert isinstance(await got(inbox), FetchRefused)
        reading.fetcher.remove(inbox)
    assert len(broker.requests) - before < 60
    broker.append(B, batch(0), 3)
    assert (await got(other)).position == 0


async def test_emptiness_counts_where_nobody_got_anything(broker: Broker) -> None:
    """The broker had no reason to hold anything back, so offsets up to the last stable one hold nothing."""
    reading = Reading(broker)
    inboxes = [reading.subscribe(where) for where in (A, B)]
    await reading.rounds(2)
    broker.logs[B].end = 40
    broker.wake()
    chunk = await got(inboxes[1])
    assert (chunk.position, len(chunk.records), chunk.conclusive, chunk.last_stable_offset) == (0, 0, True, 40)
    assert all(request.session_epoch >= 0 for request in broker.requests)


async def test_emptiness_beside_records_of_others_does_not_count(broker: Broker) -> None:
    """The response was used up by the one before it; what is there comes later, whole."""
    reading = Reading(broker, response_max_bytes=50_000, partition_max_bytes=50_000)
    inboxes = [reading.subscribe(where) for where in (A, B)]
    await reading.rounds(2)
    for where in (A, B):
        broker.append(where, batch(0, 1, size=45_000), 1)
    chunks = [await got(inbox) for inbox in inboxes]
    assert [(chunk.position, len(chunk.records) > 45_000) for chunk in chunks] == [(0, True), (0, True)]


async def test_hole_is_found_although_others_never_pause(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that gets nothing for long is asked for by itself, first in a request outside of the session."""
    monkeypatch.setattr(fetch_module, "STARVED_S", 0.05)
    reading = Reading(broker)
    busy, hole = reading.subscribe(A), reading.subscribe(B)

    def more(_request: Any) -> None:
        broker.append(A, batch(broker.logs[A].end, 1), 1)

    broker.before_answer = more
    taking = asyncio.create_task(_taking(busy))
    await reading.rounds(2)
    broker.logs[B].end = 40
    chunk = await got(hole)
    taking.cancel()
    assert (chunk.position, len(chunk.records), chunk.last_stable_offset, chunk.conclusive) == (0, 0, 40, True)
    alone = [request for request in broker.requests if request.session_epoch == -1]
    assert [named(request) for request in alone] == [[(1, 0)]]


async def _taking(inbox: Inbox) -> None:
    while True:
        await inbox.get()


async def test_stable_offset_that_moves_by_itself_is_noticed(broker: Broker) -> None:
    """A session does not tell it; an answer before its time does."""
    reading = Reading(broker, wait_max_ms=200)
    inbox = reading.subscribe(A)
    broker.logs[A].end, broker.logs[A].held_stable = 40, 0
    await reading.rounds(2)
    broker.logs[A].held_stable = None
    broker.wake()
    assert (await got(inbox)).last_stable_offset == 40


async def test_redirected_reader_asks_for_the_leader_s_own_log(broker: Broker) -> None:
    """A selector on the broker names another replica: the version that knows of it is not used again (KIP-392)."""
    broker.logs[A].preferred = 3
    broker.append(A, batch(0), 3)

    def obey(_request: Any) -> None:
        if broker.versions[-1] <= 10:
            broker.logs[A].preferred = -1

    broker.before_answer = obey
    reading = Reading(broker)
    assert (await got(reading.subscribe(A))).position == 0
    assert broker.versions[0] == 17
    assert broker.versions[-1] == 10


async def test_topics_without_ids_are_named(broker: Broker) -> None:
    """From a source that gives none."""
    reading = Reading(broker)
    inbox = reading.subscribe(A, topic_id=None)
    broker.append(A, batch(0), 3)
    assert (await got(inbox)).position == 0
    assert set(broker.versions) == {12}


async def test_broken_connection_refuses_everyone_and_closes_the_session(broker: Broker) -> None:
    """Each asks for its leader; those that come back get a new session, and the broker drops the old one."""
    reading = Reading(broker)
    inbox = reading.subscribe(A)
    await reading.rounds(2)
    broker.lost = 1
    assert isinstance(await got(inbox), FetchRefused)
    assert reading.fetcher.idle
    again = reading.subscribe(A)
    broker.append(A, batch(0), 3)
    assert (await got(again)).position == 0
    assert len(broker.sessions) == 1


async def test_backlog_of_many_partitions_stays_within_the_budget(broker: Broker) -> None:
    """Nobody takes anything out: what is held never exceeds the limit by more than one response."""
    budget = Budget(4 << 20)
    reading = Reading(broker, budget=budget, partition_max_bytes=1 << 20)
    wheres = [TopicPartition("orders", n) for n in range(50)]
    for where in wheres:
        log = broker.add(where)
        for at in range(8):
            log.batches.append((at, at + 1, batch(at, 1, size=300_000)))
        log.end = 8
    inboxes = [reading.subscribe(where) for where in wheres]
    await asyncio.sleep(0.3)
    assert budget.used_bytes > 2 << 20
    assert budget.used_bytes <= (4 << 20) + 300_100
    pumps = [asyncio.create_task(_read_to(inbox, 8)) for inbox in inboxes]
    async with asyncio.timeout(WITHIN_S):
        assert await asyncio.gather(*pumps) == [list(range(8))] * 50


async def _read_to(inbox: Inbox, end: int) -> list[int]:
    """Which offsets came, by the sizes of what was fetched."""
    seen: list[int] = []
    while not seen or seen[-1] < end - 1:
        chunk = await inbox.get()
        assert isinstance(chunk, Chunk)
        position = chunk.position
        for _ in range(len(chunk.records) // 300_000):
            seen.append(position)
            position += 1
    inbox.close()
    return seen


@pytest.mark.parametrize("seed", range(10))
async def test_everything_comes_once_and_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions lost, connections cut, slow takers, partitions that come and go, holes, small responses."""
    monkeypatch.setattr(fetch_session, "RENEW_AFTER_S", 0.2)
    monkeypatch.setattr(fetch_module, "STARVED_S", 0.02)
    rng = random.Random(seed)
    broker = Broker(slots=rng.choice([0, 1, 5]))
    wheres = [TopicPartition("orders", n) for n in range(6)]
    reading = Reading(broker, wait_max_ms=3, backoff_ms=1, response_max_bytes=3000, partition_max_bytes=1500)
    for where in wheres:
        broker.add(where)
    takers = [asyncio.create_task(_take_all(reading, where, random.Random(seed * 10 + where[1]))) for where in wheres]
    for _ in range(150):
        await asyncio.sleep(rng.random() * 0.003)
        _mischief(rng, broker, wheres)
    for where in wheres:
        broker.logs[where].held_stable = None
    broker.finished = True
    broker.wake()
    try:
        async with asyncio.timeout(WITHIN_S):
            assert await asyncio.gather(*takers) == [broker.logs[where].end for where in wheres]
    finally:
        reading.task.cancel()


def _mischief(rng: random.Random, broker: Broker, wheres: list[TopicPartition]) -> None:
    where = rng.choice(wheres)
    log = broker.logs[where]
    what = rng.random()
    if what < 0.6:
        count = rng.randint(1, 5)
        broker.append(where, batch(log.end, count, size=rng.choice([1, 100, 600])), count)
    elif what < 0.7:
        log.held_stable = log.stable if rng.random() < 0.5 else None
    elif what < 0.8:
        broker.forget_sessions()
    elif what < 0.85:
        broker.lost = 1
    elif what < 0.95:
        log.end += rng.randint(1, 4)
    else:
        broker.throttled = rng.randint(1, 3)


async def _take_all(reading: Reading, where: TopicPartition, rng: random.Random) -> int:
    """Take everything, check that it is continuous, and come back after a refusal; returns where it ended."""
    position, inbox = 0, reading.subscribe(where)
    while not reading.broker.finished or position < reading.broker.logs[where].end:
        try:
            async with asyncio.timeout(0.05):
                fetched = await inbox.get()
        except TimeoutError:
            continue
        if isinstance(fetched, Chunk):
            assert fetched.position == position
            tail = tail_of(fetched.records)
            position = fetched.last_stable_offset if tail is None else tail.next_offset
            if rng.random() < 0.1:
                await asyncio.sleep(0.01)
            if rng.random() > 0.1:
                continue
        reading.fetcher.remove(inbox)
        inbox.close()
        inbox = reading.subscribe(where, position)
    return position
