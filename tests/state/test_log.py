"""Load and follow against scripted answers; with real brokers in `real/test_state*.py`."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from twinlog.batch.records import Record as RawRecord
from twinlog.control.codec import encode
from twinlog.control.image import Image
from twinlog.control.records import Change, ShardRecord, Tombstone
from twinlog.errors import BadInput, ConnectionLost, RetryLater, TakeOverAnew, TwinlogError
from twinlog.names import TopicPartition
from twinlog.state import log as module
from twinlog.state.fetch import Piece
from twinlog.state.log import StateLog
from twinlog.wire.cluster import Cluster, Leader
from twinlog.wire.leaders import Answer
from twinlog.wire.ops import EARLIEST, ListedOffset

SHARDS = 2


class FakeTopic:
    """Two shards of one record an offset; `faults` are raised or answered by the next fetches instead."""

    def __init__(self) -> None:
        self.logs: dict[int, list[Change]] = {shard: [] for shard in range(SHARDS)}
        self.starts = dict.fromkeys(range(SHARDS), 0)
        self.stable: dict[int, int] = {}
        self.faults: list[TwinlogError | int] = []
        self.leaders: dict[int, int] = {0: 1, 1: 2}
        self.refreshed = 0
        self.fetches = 0

    def leader(self, tp: TopicPartition) -> Leader | None:
        """As the cluster's cache."""
        node = self.leaders.get(tp.partition)
        return None if node is None else Leader(node, 0)

    async def topics(self, _: Any) -> None:
        """A refresh of the metadata."""
        self.refreshed += 1
        self.leaders = {0: 1, 1: 2}

    async def list_offsets(self, _: Any, asked: Mapping[TopicPartition, int], **__: Any) -> Any:
        """Starts and ends."""
        return {
            tp: ListedOffset(self.starts[tp.partition] if at == EARLIEST else len(self.logs[tp.partition]))
            for tp, at in asked.items()
        }

    async def fetch(
        self, _: Any, node: int, asked: Mapping[TopicPartition, tuple[Leader, int]], **__: Any
    ) -> dict[TopicPartition, Answer[Piece]]:
        """One record a partition, or the next fault."""
        await asyncio.sleep(0.001)
        self.fetches += 1
        if self.faults:
            fault = self.faults.pop(0)
            if isinstance(fault, TwinlogError):
                raise fault
            return {tp: Answer(fault) for tp in asked}
        return {tp: Answer(0, self._piece(tp.partition, offset)) for tp, (_, offset) in asked.items() if node}

    def _piece(self, shard: int, offset: int) -> Piece:
        changes = self.logs[shard][offset : min(offset + 1, self.stable.get(shard, 1 << 30))]
        records = tuple(RawRecord(offset + at, 0, *encode(change)) for at, change in enumerate(changes))
        return Piece(records, offset + len(records))

    async def ask_leaders(
        self, _: Any, asked: Mapping[TopicPartition, int], ask: Callable[..., Any], **__: Any
    ) -> dict[TopicPartition, Answer[Piece]]:
        """One round without retries."""
        answers: dict[TopicPartition, Answer[Piece]] = {}
        for tp, offset in asked.items():
            answers |= await ask(1, {tp: (Leader(1, 0), offset)}, 1.0)
        return answers


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> FakeTopic:
    """An empty topic."""
    topic = FakeTopic()
    for name in ("list_offsets", "fetch", "ask_leaders"):
        monkeypatch.setattr(module, name, getattr(topic, name))
    monkeypatch.setattr(module, "LEADERLESS_RETRY_S", 0.05)
    return topic


@pytest.fixture
def log(topic: FakeTopic) -> StateLog:
    """A log over the fake."""
    return StateLog(cast("Cluster", topic), SHARDS)


def turn(shard: int, number: int) -> ShardRecord:
    """A record whose content tells its turn."""
    return ShardRecord(shard, str(number))


async def test_a_load_reads_every_shard_to_its_end(topic: FakeTopic, log: StateLog) -> None:
    """The last record of each key is there, a removed one is not, and the positions are the ends."""
    topic.logs[0] = [turn(0, n) for n in range(5)]
    topic.logs[1] = [turn(1, 0), Tombstone(("shard", 1))]
    image = await log.load()
    assert image.shards == {0: turn(0, 4)}
    assert image.positions == {0: 5, 1: 2}


async def test_a_load_begins_at_the_logs_start(topic: FakeTopic, log: StateLog) -> None:
    """What was deleted in front is not asked for."""
    topic.logs[0] = [turn(0, n) for n in range(5)]
    topic.starts[0] = 3
    assert (await log.load()).positions == {0: 5, 1: 0}
    assert topic.fetches == 2


async def test_a_load_held_up_by_a_transaction_ends_in_time(topic: FakeTopic, log: StateLog) -> None:
    """It waits for the high watermark, names the shard and offset that are stuck, and says what to do."""
    topic.logs[1] = [turn(1, 0), turn(1, 1)]
    topic.stable[1] = 1
    with pytest.raises(RetryLater, match=r"__mirror_state-1 could not be read .* offset 1\. .*try again in a minute"):
        await log.load(timeout_s=0.1)


@pytest.mark.parametrize(
    ("code", "expected"), [(6, RetryLater), (-1, RetryLater), (1, TakeOverAnew), (87, TwinlogError)]
)
async def test_codes_of_a_load(topic: FakeTopic, log: StateLog, code: int, expected: type[TwinlogError]) -> None:
    """What has not passed in time is for later, a lost offset is told, the rest by its kind."""
    topic.logs[0] = [turn(0, 0)]
    topic.faults = [code]
    with pytest.raises(expected, match="__mirror_state-0"):
        await log.load()


async def test_an_empty_state_that_may_not_be_read_is_not_taken_for_an_empty_one(
    topic: FakeTopic, log: StateLog
) -> None:
    """Where nothing is, the ends do not tell whether one may read."""
    topic.faults = [29]
    with pytest.raises(TwinlogError, match="READ on TOPIC __mirror_state"):
        await log.load()
    assert (await log.load()).positions == {0: 0, 1: 0}


async def test_no_topic_is_an_empty_image(topic: FakeTopic) -> None:
    """Nothing is asked of a topic that is not there."""
    image = await StateLog(cast("Cluster", topic), 0).load()
    assert (image.shards, image.positions, topic.fetches) == ({}, {}, 0)


async def followed(topic: FakeTopic, log: StateLog, image: Image, until: int) -> list[Change]:
    """Follow until so many changes came, while records keep being appended."""
    seen: list[Change] = []
    task = asyncio.create_task(log.follow(image, seen.extend))
    async with asyncio.timeout(10):
        while len(seen) < until and not task.done():  # noqa: ASYNC110  # the follower is a task of its own
            await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert topic.fetches
    return seen


@pytest.mark.parametrize(
    "faults",
    [
        [],
        [ConnectionLost("x")],
        [6, 6],
        [-1],
        [ConnectionLost("x"), 74, ConnectionLost("x")],
    ],
)
async def test_following_neither_skips_nor_repeats(
    topic: FakeTopic, log: StateLog, faults: list[TwinlogError | int]
) -> None:
    """Whatever fails in between, each shard's changes come once, in order, and are in the image."""
    image = await log.load()
    for shard in range(SHARDS):
        topic.logs[shard] = [turn(shard, n) for n in range(10)]
    topic.faults = list(faults)
    seen = await followed(topic, log, image, 20)
    for shard in range(SHARDS):
        assert [change for change in seen if change.key == ("shard", shard)] == topic.logs[shard]
    assert image.positions == {0: 10, 1: 10}
    assert image.shards == {0: turn(0, 9), 1: turn(1, 9)}
    assert (topic.refreshed > 0) == bool(faults)


async def test_a_shard_without_a_leader_is_asked_for_again(topic: FakeTopic, log: StateLog) -> None:
    """The others are followed meanwhile, and it joins them once it has a leader."""
    image = await log.load()
    topic.logs = {0: [turn(0, 0)], 1: [turn(1, 0)]}
    topic.leaders = {0: 1}
    assert sorted(await followed(topic, log, image, 2), key=str) == [turn(0, 0), turn(1, 0)]
    assert topic.refreshed


async def test_no_leader_at_all(topic: FakeTopic, log: StateLog) -> None:
    """With every broker gone the follower waits and asks."""
    image = await log.load()
    topic.logs[0] = [turn(0, 0)]
    topic.leaders = {}
    assert await followed(topic, log, image, 1) == [turn(0, 0)]


@pytest.mark.parametrize(("fault", "expected"), [(1, TakeOverAnew), (BadInput("x"), BadInput)])
async def test_what_cannot_pass_ends_following(
    topic: FakeTopic, log: StateLog, fault: TwinlogError | int, expected: type[TwinlogError]
) -> None:
    """A lost position or a record that is refused is raised, and no poll is left behind."""
    image = await log.load()
    topic.faults = [fault]
    with pytest.raises(expected):
        await log.follow(image, lambda _: None)
    assert len(asyncio.all_tasks()) == 1
