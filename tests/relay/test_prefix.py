"""How a log comes to start above 0: what is filled, and how the topic lets it be deleted."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from twinlog.batch.blank import MAX_FILLER
from twinlog.errors import PartitionFailed, RetryLater
from twinlog.names import TopicPartition
from twinlog.relay import prefix
from twinlog.relay.prefix import (
    AT_ONCE_FROM,
    DELETE_TOO,
    MOST_A_RUN,
    MOST_EPOCHS,
    Filled,
    fill_prefix,
    follow_log_start,
)
from twinlog.relay.progress import Accepted, Answer, BlankStep, DataStep, Plan, Progress, Refused, Send
from twinlog.relay.stream import Stream
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import ConfigEntry, LowWatermark

WHERE = TopicPartition("t", 0)
MEANT = UUID(int=7)


class Log:
    """A destination that appends what it is given; the first answers are `answers`."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.steps: list[DataStep | BlankStep] = []

    async def append(self, _stream: Any, plan: Plan) -> Answer:
        """As the destination's."""
        self.steps += plan.steps
        return self.answers.pop(0) if self.answers else Accepted()

    @property
    def sends(self) -> list[Send]:
        """The batches of plain data."""
        return [send for step in self.steps if isinstance(step, DataStep) for send in step.sends]

    @property
    def runs(self) -> list[tuple[int, int, bool]]:
        """First offset and length of the runs of blanks, and whether each was to be one transaction."""
        return [(step.first, step.count, step.at_once) for step in self.steps if isinstance(step, BlankStep)]


def stream(max_batch_bytes: int = 1 << 20) -> Stream:
    """What a prefix asks of a stream."""
    made = SimpleNamespace(where=WHERE, max_batch_bytes=max_batch_bytes, compacted=False)
    return cast("Stream", made)


def progress(position: int, spent_epoch: int = 0) -> Progress:
    """A producer that has written nothing yet."""
    return Progress(WHERE, position, 7, 0, 0, spent_epoch)


async def filled(
    log: Log, position: int, start: int, *, hidden: bool = True, spent_epoch: int = 0, **more: Any
) -> tuple[Filled, list[int]]:
    """Where it stands afterwards, and what was told on the way."""
    told: list[int] = []
    to = await fill_prefix(
        cast("Any", log),
        stream(**more),
        progress(position, spent_epoch),
        start,
        lambda p: told.append(p.position),
        hidden=hidden,
    )
    return to, told


async def test_nothing_is_filled_where_the_log_is_far_enough() -> None:
    """A partition that was taken over behind its start."""
    log = Log()
    assert await filled(log, 100, 100) == (Filled(progress(100), closed_off=False), [])
    assert log.steps == []


async def test_filler_is_blanks_in_runs_behind_which_an_owner_may_end() -> None:
    """No reader of what is committed sees any of it; each run is told of, and what is left over goes as markers."""
    log = Log()
    start = 5 + MOST_A_RUN + AT_ONCE_FROM - 1
    after, told = await filled(log, 5, start)
    assert log.runs == [(5, MOST_A_RUN, True), (5 + MOST_A_RUN, AT_ONCE_FROM - 1, False)]
    assert log.sends == []
    assert told == [5 + MOST_A_RUN, start]
    assert after.closed_off
    assert (after.progress.position, after.progress.producer_id, after.progress.sequence) == (start, 7, 0)
    assert [step.epoch for step in log.steps if isinstance(step, BlankStep)] == [1, 2]
    assert after.progress.epoch == 3


async def test_a_short_prefix_needs_no_transaction() -> None:
    """Then nothing of the partition's own transactional id is to be closed off."""
    log = Log()
    after, _ = await filled(log, 0, AT_ONCE_FROM - 1)
    assert log.runs == [(0, AT_ONCE_FROM - 1, False)]
    assert not after.closed_off


@pytest.mark.parametrize("why", ["no right for markers", "epochs", "no right for transactions"])
async def test_filler_is_plain_data_where_blanks_cannot_be_written(why: str) -> None:
    """In large batches, each alone and on every replica; sequences follow one another, so that a takeover can go on."""
    refused = Refused(codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 5)
    log = Log(*([refused] if why == "no right for transactions" else []))
    start = 5 + MAX_FILLER + 10
    spent = MOST_EPOCHS if why == "epochs" else 0
    after, told = await filled(log, 5, start, hidden=why != "no right for markers", spent_epoch=spent)
    assert told == [5 + MAX_FILLER, start]
    assert (after.progress.position, after.progress.sequence) == (start, MAX_FILLER + 10)
    assert not after.closed_off
    assert [(send.batch.first, send.batch.count) for send in log.sends] == [(5, MAX_FILLER), (5 + MAX_FILLER, 10)]
    assert all(send.barrier and send.acks_all for send in log.sends)


async def test_a_topic_that_takes_small_batches_only_gets_those() -> None:
    """`max.message.bytes` holds for filler, too."""
    log = Log()
    await filled(log, 0, 5_000, hidden=False, max_batch_bytes=1_000)
    assert len(log.sends) > 5
    assert all(send.batch.size <= 1_000 for send in log.sends)


async def test_a_refused_filler_ends_it() -> None:
    """As any other append that is refused."""
    with pytest.raises(PartitionFailed, match="refuses the write at offset 0") as raised:
        await filled(Log(Refused(codes.TOPIC_AUTHORIZATION_FAILED, 0)), 0, 10)
    assert raised.value.retriable


class Topic:
    """A topic that answers DeleteRecords with `answers` in turn (then 0), and whose configs can be changed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: int, **configs: str) -> None:
        self.answers = list(answers)
        self.configs = {name.replace("_", "."): value for name, value in configs.items()}
        self.altered: list[tuple[dict[str, str], list[str]]] = []
        self.id = MEANT
        for name, value in {
            "delete_records": self._delete,
            "describe_configs": self._describe,
            "alter_configs": self._alter,
            "POLICY_PAUSE_S": 0.001,
        }.items():
            monkeypatch.setattr(prefix, name, value)

    @property
    def cluster(self) -> Cluster:
        """The cluster that has it."""
        return cast("Cluster", self)

    async def topics(self, _names: list[str]) -> dict[str, Any]:
        """As the cluster's."""
        return {"t": SimpleNamespace(id=self.id)}

    async def _delete(self, _cluster: Any, before: dict[TopicPartition, int]) -> dict[TopicPartition, LowWatermark]:
        assert before == {WHERE: 50}
        error = self.answers.pop(0) if self.answers else 0
        return {WHERE: LowWatermark(-1 if error else 50, error)}

    async def _describe(self, *_: Any, keys: list[str]) -> dict[str, dict[str, ConfigEntry]]:
        source = "DYNAMIC_TOPIC_CONFIG"
        defaults = {name: ConfigEntry(name, "604800000", "DEFAULT_CONFIG", False, False) for name in keys}
        own = {name: ConfigEntry(name, value, source, False, False) for name, value in self.configs.items()}
        return {"t": defaults | own}

    async def _alter(self, *_: Any, set_to: dict[str, str], delete: Any = ()) -> None:
        self.altered.append((dict(set_to), list(delete)))


async def test_the_log_start_follows_by_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that deletes by itself lets others delete."""
    topic = Topic(monkeypatch, cleanup_policy="delete")
    await follow_log_start(topic.cluster, WHERE, 50, MEANT)
    assert topic.altered == []


async def test_a_compacted_topic_deletes_for_that_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own configs are put back, also where the deletion fails, and what it did not set is set no more."""
    topic = Topic(monkeypatch, codes.POLICY_VIOLATION, cleanup_policy="compact")
    await follow_log_start(topic.cluster, WHERE, 50, MEANT)
    back = ({"cleanup.policy": "compact"}, ["retention.ms", "retention.bytes"])
    assert topic.altered == [(DELETE_TOO, []), back]


async def test_the_configs_that_another_partition_has_set_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not the topic's own: putting them back would keep them. It is tried again until the topic is itself."""
    topic = Topic(monkeypatch, codes.POLICY_VIOLATION, codes.POLICY_VIOLATION, cleanup_policy="compact,delete")
    await follow_log_start(topic.cluster, WHERE, 50, MEANT)
    assert topic.altered == []


async def test_a_missing_right_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """And retried, since it may be granted."""
    topic = Topic(monkeypatch, codes.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(PartitionFailed, match="Grant DELETE on topic t") as raised:
        await follow_log_start(topic.cluster, WHERE, 50, MEANT)
    assert raised.value.retriable


async def test_what_cannot_be_deleted_now_is_tried_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some attempts, with the error that the broker gave."""
    topic = Topic(monkeypatch, *[codes.NOT_LEADER_OR_FOLLOWER] * 100)
    with pytest.raises(RetryLater, match="below 50 cannot be deleted just now: NOT_LEADER"):
        await follow_log_start(topic.cluster, WHERE, 50, MEANT)


async def test_nothing_is_deleted_from_another_topic_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may have deleted the topic and made it anew: its records are theirs."""
    topic = Topic(monkeypatch, cleanup_policy="delete")
    topic.id = UUID(int=8)
    deleted: list[Any] = []
    monkeypatch.setattr(prefix, "delete_records", deleted.append)
    with pytest.raises(RetryLater, match="is not there any more; nothing is deleted"):
        await follow_log_start(topic.cluster, WHERE, 50, MEANT)
    assert deleted == []
