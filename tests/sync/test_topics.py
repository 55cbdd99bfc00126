"""Topics on both sides: which may be mirrored, which destination can become a twin, and how one is made."""

import uuid
from typing import Any

import pytest

from twinlog.errors import (
    AuthorizationFailed,
    InvalidConfig,
    RefreshLeader,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from twinlog.names import TopicPartition
from twinlog.sync import topics
from twinlog.sync.configs import ConfigPlan
from twinlog.sync.topics import (
    Span,
    check_twin,
    create,
    grow,
    internal_reason,
    is_empty,
    portions,
    read_topics,
    spans,
)
from twinlog.wire.cluster import PartitionInfo, TopicInfo
from twinlog.wire.metadata import NO_ID
from twinlog.wire.ops import CreatedTopic, ListedOffset

CLUSTER: Any = None
ID = uuid.uuid4()
PLAN = ConfigPlan({"compression.type": "producer", "retention.ms": "x"}, frozenset({"compression.type"}))


def info(name: str = "t", *, partitions: int = 1, error: int = 0, internal: bool = False) -> TopicInfo:
    """A topic as metadata tells it."""
    parts = {number: PartitionInfo(1, 0, (1,), (1,), 0) for number in range(partitions)}
    return TopicInfo(name, ID, error, internal, parts)


class FakeCluster:
    """Tells topics."""

    def __init__(self, *told: TopicInfo) -> None:
        self.told = {topic.name: topic for topic in told}
        self.asked: list[Any] = []

    async def topics(self, names: Any) -> dict[str, TopicInfo]:
        """As `Cluster.topics`."""
        self.asked.append(names)
        return self.told


def test_internal_topics_give_their_reason() -> None:
    """By name, and by what the broker says."""
    assert "groups' offsets" in str(internal_reason(info("__consumer_offsets")))
    assert "internal" in str(internal_reason(info("own-internal", internal=True)))
    assert internal_reason(info("__something")) is None


async def test_read_topics_tells_missing_from_denied() -> None:
    """A topic that is not there is simply absent; what may not be seen, or has an impossible name, is an error."""
    cluster: Any = FakeCluster(
        info("a"), info("b", error=3), info("c", error=29), info("d", error=17), info("e", error=5)
    )
    found, failed = await read_topics(cluster, ["a", "b", "c", "d", "e"])
    assert found.keys() == {"a", "e"}
    assert isinstance(failed["c"], AuthorizationFailed)
    assert "DESCRIBE on topic 'c'" in str(failed["c"])
    assert isinstance(failed["d"], UnknownTopicOrPartition)
    assert failed.keys() == {"c", "d"}
    cluster.asked.clear()
    assert await read_topics(cluster, []) == ({}, {})
    assert cluster.asked == []


async def test_spans_leave_out_what_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start and end of each partition that has a leader."""

    async def listed(_cluster: Any, asked: dict[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        return {tp: ListedOffset(10 + at, error=6 * tp.partition) for tp, at in asked.items()}

    monkeypatch.setattr(topics, "list_offsets", listed)
    assert await spans(CLUSTER, [info(partitions=2)]) == {TopicPartition("t", 0): Span(8, 9)}


def twin(theirs: tuple[int, int] | None, ours: tuple[int, int] | None, *, recorded: bool = False) -> None:
    """Check one partition with these starts and ends."""
    tp = TopicPartition("t", 0)
    source = {} if theirs is None else {tp: Span(*theirs)}
    destination = {} if ours is None else {tp: Span(*ours)}
    check_twin(info(), info(), source, destination, recorded=recorded, may_grow=False)


@pytest.mark.parametrize("ours", [(0, 0), (0, 5), (0, 10), (5, 10)])
def test_what_may_be_a_twin_passes(ours: tuple[int, int]) -> None:
    """Empty, behind, level, or with the same beginning; the worker compares the records."""
    twin((5, 10) if ours[0] == 5 else (0, 10), ours)
    assert ours[1] <= 10


@pytest.mark.parametrize(
    ("theirs", "ours", "sentence"),
    [
        ((0, 10), (0, 11), "holds 1 offsets that the source does not have"),
        ((0, 10), (1, 5), "cannot be put in front"),
        ((7, 10), (0, 7), "whether they were the source's cannot be told"),
        (None, (0, 1), "cannot be read at the source"),
        ((0, 1), None, "cannot be read at the destination"),
    ],
)
def test_what_cannot_be_a_twin_is_refused_with_its_reason(
    theirs: tuple[int, int] | None, ours: tuple[int, int] | None, sentence: str
) -> None:
    """Each reason names the partition, the offsets and what to do."""
    with pytest.raises(TopicAlreadyExists, match=sentence):
        twin(theirs, ours)


def test_a_topic_of_the_mirrors_own_is_only_checked_at_its_end() -> None:
    """Its beginning may differ by retention, and its records were compared before."""
    twin((0, 10), (3, 5), recorded=True)
    twin((7, 10), (0, 7), recorded=True)
    with pytest.raises(TopicAlreadyExists, match="ends at offset 11"):
        twin((0, 10), (3, 11), recorded=True)


@pytest.mark.parametrize(
    ("count", "advice"), [(1, "left as it is.*raise it to 2"), (3, "Delete the topic at the destination")]
)
def test_another_partition_count_is_refused(count: int, advice: str) -> None:
    """Fewer can be raised, more cannot be undone."""
    with pytest.raises(TopicAlreadyExists, match=advice):
        check_twin(info(partitions=2), info(partitions=count), {}, {}, recorded=False, may_grow=False)


def test_a_twin_that_may_grow_is_checked_as_far_as_it_goes() -> None:
    """The partitions that it lacks hold nothing; more than the source has are refused in any case."""
    tp = TopicPartition("t", 0)
    spans_of = ({tp: Span(0, 9), TopicPartition("t", 1): Span(0, 9)}, {tp: Span(0, 9)})
    check_twin(info(partitions=2), info(), *spans_of, recorded=True, may_grow=True)
    with pytest.raises(TopicAlreadyExists, match="ends at offset 9"):
        check_twin(info(partitions=2), info(), {tp: Span(0, 8)}, {tp: Span(0, 9)}, recorded=True, may_grow=True)
    with pytest.raises(TopicAlreadyExists, match="Delete the topic at the destination"):
        check_twin(info(partitions=2), info(partitions=3), {}, {}, recorded=True, may_grow=True)


def test_a_topic_is_empty_only_where_every_partition_is_known_to_be() -> None:
    """One that cannot be read may hold anything."""
    tps = [TopicPartition("t", number) for number in range(2)]
    assert is_empty(info(partitions=2), dict.fromkeys(tps, Span(5, 5)))
    assert not is_empty(info(partitions=2), {tps[0]: Span(5, 5)})
    assert not is_empty(info(partitions=2), {tps[0]: Span(5, 5), tps[1]: Span(5, 6)})


@pytest.mark.parametrize(
    ("count", "dry_run", "told"),
    [
        (2, False, "partition 1 was added there, to be mirrored from its own beginning"),
        (4, False, "partitions 1 to 3 were added there, to be mirrored from their own beginning"),
        (4, True, "partitions 1 to 3 would be added there"),
    ],
)
async def test_growing_says_what_was_or_would_be_added(
    monkeypatch: pytest.MonkeyPatch, count: int, told: str, *, dry_run: bool
) -> None:
    """A dry run has the brokers judge it, and change nothing."""
    asked: list[Any] = []

    async def create_partitions(*given: Any, validate_only: bool) -> None:
        asked.append((*given[1:], validate_only))

    monkeypatch.setattr(topics, "create_partitions", create_partitions)
    assert told in await grow(CLUSTER, info(), count, dry_run=dry_run)
    assert asked == [("t", count, dry_run)]


def test_topics_are_made_together_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many by one request, in order and each once; one of very many partitions goes alone."""
    monkeypatch.setattr(topics, "CREATED_TOGETHER", 3)
    monkeypatch.setattr(topics, "PARTITIONS_TOGETHER", 10)
    counts = [1, 1, 1, 1, 8, 2, 50, 4, 6, 1]
    made = [info(f"t{number}", partitions=count) for number, count in enumerate(counts)]
    assert [[len(topic.partitions) for topic in portion] for portion in portions(made)] == [
        [1, 1, 1],
        [1, 8],
        [2],
        [50],
        [4, 6],
        [1],
    ]
    assert [topic for portion in portions(made) for topic in portion] == made
    assert list(portions([])) == []


class Controller:
    """Answers for `create_topic`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, bad: str = "", error: Exception | None = None) -> None:
        self.asked: list[tuple[dict[str, str], bool]] = []
        self.made = CreatedTopic("t", ID, 1, 1)
        self._bad, self._error = bad, error
        monkeypatch.setattr(topics, "create_topic", self.create)

    async def create(self, _cluster: Any, _name: str, *, configs: Any, validate_only: bool, **_more: Any) -> Any:
        """Note what was asked; refuse the bad config, or everything."""
        self.asked.append((dict(configs), validate_only))
        if self._error is not None:
            raise self._error
        if self._bad in configs:
            raise InvalidConfig("bad value.")
        return self.made


async def make(cluster: Any = CLUSTER) -> tuple[CreatedTopic, ConfigPlan]:
    """Create the topic of these tests."""
    return await create(cluster, "t", partitions=1, replication_factor=None, planned=PLAN)


async def test_a_topic_is_made_in_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tried beforehand."""
    controller = Controller(monkeypatch)
    assert await make() == (controller.made, PLAN)
    assert controller.asked == [(dict(PLAN.configs), False)]


async def test_a_config_that_the_destination_refuses_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each optional one is tried alone, without creating anything, and the rest is applied."""
    controller = Controller(monkeypatch, bad="retention.ms")
    _, done = await make()
    assert done.left_out == {"retention.ms": "bad value."}
    assert controller.asked[1:] == [({"retention.ms": "x"}, True), ({"compression.type": "producer"}, False)]


async def test_a_necessity_that_is_refused_refuses_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it there would be no twin."""
    Controller(monkeypatch, bad="compression.type")
    with pytest.raises(InvalidConfig):
        await make()


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (AuthorizationFailed("Denied."), AuthorizationFailed, "CREATE on topic 't' or on the destination cluster"),
        (TopicAlreadyExists("It exists. Nothing was changed."), TopicAlreadyExists, "It exists. Start it again."),
        (RefreshLeader("Moved."), RefreshLeader, "Moved."),
    ],
)
async def test_why_a_topic_was_not_made(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception], sentence: str
) -> None:
    """A missing right is named; one that appeared just now is looked at by the next start."""
    Controller(monkeypatch, error=error)
    with pytest.raises(kind, match=sentence):
        await make()


async def test_an_id_that_the_answer_lacks_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older brokers tell it only in metadata."""
    controller = Controller(monkeypatch)
    controller.made = CreatedTopic("t", NO_ID, -1, -1)
    made, _ = await make(FakeCluster(info()))
    assert made.id == ID
