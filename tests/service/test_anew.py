"""A topic made anew by the coordinator: when that is begun, and what stops it before anything is deleted."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from twinlog.admin.results import StartMirrorTopicsResult
from twinlog.config.mirror import MirrorConfig
from twinlog.control.anew import Anew
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import NEVER_RETRY, NO_TOPIC_ID, MirrorRecord, PartitionRecord, TopicRecord
from twinlog.errors import (
    AuthorizationFailed,
    BrokerError,
    InvalidRequest,
    RetryLater,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from twinlog.names import TopicPartition
from twinlog.relay.decide import TRUNCATED
from twinlog.service import anew as module
from twinlog.service.anew import Renewal
from twinlog.sync.configs import SourceConfigs
from twinlog.sync.topics import Span
from twinlog.wire.cluster import PartitionInfo, TopicInfo
from twinlog.wire.ops import ConfigEntry

SOURCE, OLD, NEW, OTHER = (UUID(int=n) for n in (1, 2, 3, 4))
THERE, HERE = "source", "destination"
CONFIGS = {"bootstrap.servers": "a:1", "mirror.support.unclean.leader.election": "t"}
MIRROR = MirrorRecord("m", CONFIGS, "S")
TOPIC = TopicRecord("m", "t", DesiredState.MIRRORING, SOURCE, OLD, 2)


def info(topic_id: UUID) -> TopicInfo:
    """A topic of two partitions with two replicas."""
    return TopicInfo("t", topic_id, 0, False, dict.fromkeys(range(2), PartitionInfo(1, 0, (1, 2), (1, 2), 0)))


class _Bench:
    """A topic one of whose partitions has failed; both clusters are played, and so are the other workers."""

    def __init__(self) -> None:
        self.topics = {THERE: info(SOURCE), HERE: info(OLD)}
        self.unreadable: set[str] = set()
        self.full: set[UUID] = {OLD, SOURCE}
        self.deleted: list[UUID] = []
        self.started: list[Any] = []
        self.refuses: Exception | None = None
        self.creation: Exception | None = TopicAlreadyExists("it is there.")
        self.asked: list[Any] = []
        self.source_configs: Any = SourceConfigs({}, 1)
        self.segment_ms, self.ratio, self.policy = "1", "0.5", "compact"
        self.workers_live = True
        self.image = Image([MIRROR, TOPIC])
        self.partition(0, PartitionState.FAILED, error=f"t-0: {TRUNCATED}: at 5", retry_attempt=NEVER_RETRY)
        self.partition(1, PartitionState.MIRRORING)
        self.cluster: Any = HERE
        self.renewal = Renewal(self, self.image)  # type: ignore[arg-type]  # played

    def partition(self, number: int, state: PartitionState, **more: Any) -> None:
        """Store a partition's state."""
        record = PartitionRecord("m", "t", number, state, source_topic_id=SOURCE, destination_topic_id=OLD)
        self.image.apply(replace(record, **more))

    @property
    def record(self) -> TopicRecord:
        """The topic's record."""
        record = self.image.topic("m", "t")
        assert record is not None
        return record

    async def refresh(self, **configs: str) -> str:
        """What the coordinator does, whose mirror has these configs from now on."""
        config = MirrorConfig.from_properties({**CONFIGS, **configs}, "test")
        self.image.apply(replace(MIRROR, configs={**CONFIGS, **configs}))
        source: Any = THERE
        return await self.renewal.run(MIRROR, config, source)

    # What is played

    async def read_topics(self, cluster: str, _names: Any) -> Any:
        """As `sync.topics`."""
        found = self.topics.get(cluster)
        return ({} if found is None else {"t": found}), {}

    async def spans(self, cluster: str, topics: list[TopicInfo]) -> Mapping[TopicPartition, Span]:
        """As `sync.topics`."""
        end = 9 if topics[0].id in self.full else 0
        return {TopicPartition("t", n): Span(0, end) for n in range(1 if cluster in self.unreadable else 2)}

    async def read_current(self, _cluster: Any, _topic: str) -> Mapping[str, ConfigEntry]:
        """As `sync.configs`."""
        return {
            name: ConfigEntry(name, value, source, sensitive=False, read_only=False)
            for name, value, source in (
                ("segment.bytes", "7", "DYNAMIC_TOPIC_CONFIG"),
                ("segment.ms", self.segment_ms, "DYNAMIC_TOPIC_CONFIG"),
                ("min.cleanable.dirty.ratio", self.ratio, "DYNAMIC_TOPIC_CONFIG"),
                ("cleanup.policy", self.policy, "DYNAMIC_TOPIC_CONFIG"),
                ("leader.replication.throttled.replicas", "0:1", "DYNAMIC_TOPIC_CONFIG"),
                ("flush.ms", "9", "DEFAULT_CONFIG"),
            )
        }

    async def read_source(self, _cluster: Any, topics: list[str]) -> Mapping[str, Any]:
        """As `sync.configs`."""
        return dict.fromkeys(topics, self.source_configs)

    async def create_topic(self, _cluster: Any, name: str, *, validate_only: bool, **asked: Any) -> None:
        """As `wire.ops_admin`."""
        assert validate_only
        self.asked.append((name, asked))
        if self.creation is not None:
            raise self.creation

    async def change(self, _cluster: Any, _log: Any, handler: Callable[[Image], Any]) -> Any:
        """Commit, and let the workers end what is to be at rest."""
        handled = handler(self.image)
        for change in handled.records:
            self.image.apply(change)
        if self.record.desired is DesiredState.PAUSED and self.workers_live:
            for number in range(2):
                self.partition(number, PartitionState.PAUSED)
        return handled.reply

    async def load(self, _log: Any) -> Image:
        """As the state is."""
        return self.image

    async def delete_topic_by_id(self, _cluster: Any, _name: str, topic_id: UUID) -> None:
        """As `wire.ops_delete`."""
        if self.refuses is not None:
            raise self.refuses
        self.deleted.append(topic_id)
        del self.topics[HERE]

    async def wait_gone(self, *_: Any) -> None:
        """It is gone."""

    async def start_topics(self, _cluster: Any, _log: Any, request: Any, **_: Any) -> Any:
        """As the command does."""
        self.started.append(request)
        return StartMirrorTopicsResult("m", started=("t",))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> _Bench:
    """A played surrounding."""
    bench = _Bench()
    played = ("read_topics", "spans", "read_current", "read_source", "create_topic")
    for name in (*played, "delete_topic_by_id", "wait_gone", "start_topics"):
        monkeypatch.setattr(module, name, getattr(bench, name))
    monkeypatch.setattr(module.admin_state, "change", bench.change)
    monkeypatch.setattr(module.admin_state, "load", bench.load)
    monkeypatch.setattr(module, "ALL_KNOW_S", 0.0)
    monkeypatch.setattr(module, "REST_WITHIN_S", 0.3)
    return bench


async def test_it_is_deleted_and_started_with_what_it_had(bench: _Bench) -> None:
    """Its replicas and its own configs, once the brokers have said that it may be created; named is nothing else."""
    assert await bench.refresh(**{"mirror.topics.include": "t.*,u"}) == ""
    assert bench.asked == [("t", {"partitions": 2, "replication_factor": 2})] * 2
    assert bench.deleted == [OLD]
    (request,) = bench.started
    assert (request.discovered, request.replication_factor, request.include) == (frozenset({"t"}), 2, ("t",))
    assert request.anew.configs == {
        "segment.bytes": "7",
        "segment.ms": "1",
        "min.cleanable.dirty.ratio": "0.5",
        "cleanup.policy": "compact",
    }


@pytest.mark.parametrize(
    ("segment_ms", "policy", "expected"),
    [
        ("2777", "compact", {"segment.ms": "600000", "cleanup.policy": "compact"}),
        ("2777", "compact,delete", {"segment.ms": "600000", "cleanup.policy": "compact"}),
        ("3000", "delete", {"segment.ms": "3000", "min.cleanable.dirty.ratio": "0.5", "cleanup.policy": "delete"}),
    ],
)
async def test_what_a_first_copy_has_set_for_itself_is_taken_over_as_it_was_before(
    bench: _Bench, segment_ms: str, policy: str, expected: dict[str, str]
) -> None:
    """It would be put back by that copy, which is gone by then; what an operator has set since is kept."""
    bench.segment_ms, bench.policy = segment_ms, policy
    bench.partition(1, PartitionState.MIRRORING, configs_before="segment.ms=600000,min.cleanable.dirty.ratio=")
    await bench.refresh()
    assert bench.started[0].anew.configs == {"segment.bytes": "7", **expected}


async def test_nothing_is_done_where_the_mirror_does_not_say_so(bench: _Bench) -> None:
    """Or not of this topic, or where something else has failed."""
    for configs in ({"mirror.support.unclean.leader.election": text} for text in ("false", "u.*")):
        assert await bench.refresh(**configs) == ""
    bench.partition(0, PartitionState.FAILED, error="something else", retry_attempt=NEVER_RETRY)
    assert await bench.refresh() == ""
    assert (bench.deleted, bench.record) == ([], TOPIC)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda bench: bench.topics.pop(THERE), "not there at the source"),
        (lambda bench: bench.topics.update({THERE: info(OTHER)}), "not there at the source"),
        (lambda bench: bench.unreadable.add(THERE), "cannot be read now"),
        (lambda bench: bench.topics.pop(HERE), "not there at the destination"),
        (lambda bench: bench.topics.update({HERE: info(OTHER)}), "another one at the destination"),
    ],
)
async def test_nothing_is_begun_unless_both_topics_are_well(
    bench: _Bench, spoil: Callable[[_Bench], object], said: str
) -> None:
    """The copy that is there stays what it is; a later refresh tries again."""
    spoil(bench)
    assert said in await bench.refresh()
    assert (bench.deleted, bench.record) == ([], TOPIC)
    assert said in await bench.refresh()


async def test_nothing_is_deleted_before_every_partition_has_ended(bench: _Bench) -> None:
    """A later refresh goes on, also that of another worker."""
    bench.workers_live = False
    assert "have not ended yet" in await bench.refresh()
    assert bench.deleted == []
    for number in range(2):
        bench.partition(number, PartitionState.PAUSED)
    bench.renewal = Renewal(bench, bench.image)  # type: ignore[arg-type]  # played
    assert await bench.refresh() == ""
    assert bench.deleted == [OLD]


@pytest.mark.parametrize("deleting", [False, True])
async def test_a_mirror_that_follows_no_more_keeps_what_is_not_being_deleted(bench: _Bench, *, deleting: bool) -> None:
    """The topic goes on as it was; once its deletion is announced it is made anew all the same."""
    bench.workers_live = False
    await bench.refresh()
    for number in range(2):
        bench.partition(number, PartitionState.PAUSED)
    if deleting:
        told = replace(Anew.read(bench.record.anew), deleting=True)
        bench.image.apply(replace(bench.record, anew=told.text))
    assert await bench.refresh(**{"mirror.support.unclean.leader.election": "false"}) == ""
    assert bench.deleted == ([OLD] if deleting else [])
    assert (bench.record == TOPIC) is not deleting


async def test_what_an_operator_took_back_meanwhile_is_left_alone(bench: _Bench) -> None:
    """Seen in the state itself, whatever the followed image says."""
    bench.workers_live = False
    await bench.refresh()
    for number in range(2):
        bench.partition(number, PartitionState.PAUSED)
    taken_back = Image([MIRROR, replace(bench.record, anew="")])

    async def load(_log: Any) -> Image:
        return taken_back

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.admin_state, "load", load)
        assert await bench.refresh() == ""
    assert (bench.deleted, bench.started) == ([], [])


async def test_a_worker_that_died_behind_the_delete_or_the_creation_is_no_harm(bench: _Bench) -> None:
    """The next one creates, or takes what is there and holds nothing; what holds something is somebody else's."""
    bench.workers_live = False
    await bench.refresh()
    for number in range(2):
        bench.partition(number, PartitionState.PAUSED)
    del bench.topics[HERE]
    assert await bench.refresh() == ""
    bench.topics[HERE] = info(NEW)
    assert await bench.refresh() == ""
    assert len(bench.started) == 2
    bench.full.add(NEW)
    assert "holds records" in await bench.refresh()
    assert (len(bench.started), bench.deleted) == (2, [])


@pytest.mark.parametrize(
    "refusal", [AuthorizationFailed("no."), BrokerError("no.", code=73, name="TOPIC_DELETION_DISABLED")]
)
async def test_where_the_brokers_refuse_to_delete_the_mirror_goes_on_as_before(
    bench: _Bench, refusal: Exception
) -> None:
    """The other partitions must not stand still for it."""
    bench.refuses = refusal
    assert "The right needed at the destination is DELETE on topic 't'" in await bench.refresh()
    assert (bench.record, bench.started) == (TOPIC, [])
    # Not tried again for some minutes, in which its reason stays to be seen.
    bench.refuses = None
    assert "DELETE on topic 't'" in await bench.refresh()
    assert bench.deleted == []
    bench.image.apply(replace(TOPIC, destination_topic_id=NEW))
    assert await bench.refresh() == ""


async def test_nothing_is_begun_where_the_topic_could_not_be_created_again(bench: _Bench) -> None:
    """The right to do that is asked for first; so is what of the source's configs a start reads."""
    bench.creation = AuthorizationFailed("no.")
    assert "The right needed is CREATE on topic 't'" in await bench.refresh()
    assert (bench.deleted, bench.record) == ([], TOPIC)
    bench.creation, bench.source_configs = TopicAlreadyExists("it is there."), AuthorizationFailed("unreadable.")
    assert "unreadable." in await bench.refresh()
    assert (bench.deleted, bench.record) == ([], TOPIC)
    bench.source_configs = SourceConfigs({}, 1)
    assert await bench.refresh() == ""
    assert bench.deleted == [OLD]


async def test_a_right_that_is_taken_away_meanwhile_lets_the_mirror_go_on_as_before(bench: _Bench) -> None:
    """It is asked for once more right before the deletion; other trouble is only a reason to wait."""
    bench.workers_live = False
    await bench.refresh()
    for number in range(2):
        bench.partition(number, PartitionState.PAUSED)
    bench.creation = RetryLater("later.")
    assert "later." in await bench.refresh()
    assert bench.record.desired is DesiredState.PAUSED
    bench.creation = AuthorizationFailed("no.")
    assert "goes on with the topic as it is" in await bench.refresh()
    assert (bench.deleted, bench.record) == ([], TOPIC)


async def test_trouble_that_passes_is_no_refusal(bench: _Bench) -> None:
    """It is tried again by the next refresh; and another worker may have been quicker."""
    bench.refuses = BrokerError("later.", code=7, name="REQUEST_TIMED_OUT")
    assert "later." in await bench.refresh()
    assert bench.record.desired is DesiredState.PAUSED
    bench.refuses = UnknownTopicOrPartition("gone.")
    assert await bench.refresh() == ""
    assert len(bench.started) == 1


async def test_a_start_that_did_nothing_is_not_taken_for_done(
    bench: _Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The source may show the topic no more by then; no failure is told of that."""

    async def nothing(*_: Any, **__: Any) -> Any:
        return StartMirrorTopicsResult("m", pending=("t",))

    monkeypatch.setattr(module, "start_topics", nothing)
    caplog.set_level("INFO")
    assert "not found at the source" in await bench.refresh()
    assert "was made anew" not in caplog.text


async def test_a_source_that_gives_no_ids_is_not_followed(bench: _Bench) -> None:
    """One that was created again would look as if it had been truncated."""
    unknown = replace(TOPIC, source_topic_id=NO_TOPIC_ID)
    bench.image.apply(unknown)
    bench.topics[THERE] = info(NO_TOPIC_ID)
    for number, state in enumerate((PartitionState.FAILED, PartitionState.MIRRORING)):
        failed = {"error": TRUNCATED, "retry_attempt": NEVER_RETRY} if state is PartitionState.FAILED else {}
        bench.partition(number, state, source_topic_id=NO_TOPIC_ID, **failed)
    assert "no id" in await bench.refresh()
    assert (bench.deleted, bench.record) == ([], unknown)


async def test_what_is_made_anew_already_and_not_read_yet_is_no_trouble(bench: _Bench) -> None:
    """The followed image may be behind the state."""
    bench.workers_live = False
    await bench.refresh()
    for number in range(2):
        bench.partition(number, PartitionState.PAUSED)
    done = Image([MIRROR, replace(TOPIC, destination_topic_id=NEW)])

    async def load(_log: Any) -> Image:
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.admin_state, "load", load)
        assert await bench.refresh() == ""
    assert (bench.deleted, bench.started) == ([], [])


async def test_a_refresh_waits_for_all_topics_at_once_and_begins_few(
    bench: _Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror's syncs come behind that: many truncated topics must not hold them up one by one."""
    for n in range(30):
        name = f"u{n:02}"
        bench.image.apply(replace(TOPIC, topic=name))
        stored = PartitionRecord("m", name, 0, PartitionState.FAILED, source_topic_id=SOURCE, destination_topic_id=OLD)
        bench.image.apply(replace(stored, error=TRUNCATED, retry_attempt=NEVER_RETRY))

    async def change(_cluster: Any, _log: Any, handler: Callable[[Image], Any]) -> Any:
        handled = handler(bench.image)
        for one in handled.records:
            bench.image.apply(one)
        return handled.reply

    async def read_topics(cluster: str, names: list[str]) -> Any:
        there = bench.topics[cluster]
        return {name: replace(there, name=name) for name in names}, {}

    async def spans(_cluster: Any, topics: list[TopicInfo]) -> Any:
        return {TopicPartition(topics[0].name, n): Span(0, 9) for n in range(2)}

    for name, played in (("read_topics", read_topics), ("spans", spans)):
        monkeypatch.setattr(module, name, played)
    monkeypatch.setattr(module.admin_state, "change", change)
    follows = {"mirror.support.unclean.leader.election": "true"}
    began = time.monotonic()
    trouble = await bench.refresh(**follows)
    assert time.monotonic() - began < 3 * module.REST_WITHIN_S
    assert trouble.count("have not ended yet") == module.AT_A_TIME
    going = [one.topic for one in bench.image.topics_of("m") if one.anew]
    await bench.refresh(**follows)
    assert [one.topic for one in bench.image.topics_of("m") if one.anew] == going


async def test_a_topic_that_takes_long_does_not_keep_others_from_their_turn(
    bench: _Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not finished for want of time comes first in the next refresh."""
    records = [replace(TOPIC, topic=name, desired=DesiredState.PAUSED, anew=Anew(1, {}).text) for name in ("t", "u")]
    for record in records:
        bench.image.apply(record)
    finished: list[str] = []

    async def finish(_self: Any, record: TopicRecord, _source: Any) -> None:
        finished.append(record.topic)
        await asyncio.sleep(0.02)

    monkeypatch.setattr(Renewal, "_finish", finish)
    monkeypatch.setattr(module, "FINISH_WITHIN_S", 0.01)
    monkeypatch.setattr(module, "REST_WITHIN_S", 0.0)
    follows = {"mirror.support.unclean.leader.election": "true"}
    assert "u is not made anew yet" in await bench.refresh(**follows)
    assert "t is not made anew yet" in await bench.refresh(**follows)
    assert finished == ["t", "u"]


async def test_a_start_that_is_refused_is_told(bench: _Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example where creating the topic is not allowed; each refresh tries again."""

    async def refused(*_: Any, **__: Any) -> Any:
        return StartMirrorTopicsResult("m", failed={"t": InvalidRequest("not allowed.")})

    monkeypatch.setattr(module, "start_topics", refused)
    assert await bench.refresh() == "t is not made anew: not allowed."
    assert Anew.read(bench.record.anew).replication_factor == 2


async def test_what_is_changed_between_the_look_and_the_announcement_is_not_deleted(
    bench: _Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the announcement on no operator can take it back; until then nothing is deleted."""

    async def confirmed(_self: Any, record: TopicRecord) -> TopicRecord:
        bench.image.apply(replace(record, desired=DesiredState.STOPPED))
        return record

    monkeypatch.setattr(Renewal, "_confirmed", confirmed)
    assert "changed by a command just before" in await bench.refresh()
    assert bench.deleted == []


async def test_the_deletion_is_announced_before_it_is_asked_for(bench: _Bench) -> None:
    """Whoever wants to stop the topic then is told so, and writes nothing to it."""
    seen: list[bool] = []

    class _Spy(list[UUID]):
        def append(self, one: UUID) -> None:
            seen.append(Anew.read(bench.record.anew).deleting)
            super().append(one)

    bench.deleted = _Spy()
    await bench.refresh()
    assert seen == [True]
