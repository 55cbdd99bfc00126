"""What is deleted of filler once nobody mirrors the partition, and that nothing of it makes a stop fail."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from twinlog.control.lifecycle import PartitionState
from twinlog.control.records import NO_TOPIC_ID, PartitionRecord
from twinlog.errors import RetryLater
from twinlog.names import TopicPartition
from twinlog.service import leftovers
from twinlog.service.leftovers import delete_filler, end_open
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import EARLIEST, ListedOffset

WHERE, MEANT = TopicPartition("t", 0), UUID(int=7)


class World:
    """A destination whose log has `start` and `end`, and what was deleted there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, start: int = 0, end: int = 100, topic: UUID = MEANT) -> None:
        self.start, self.end, self.topic = start, end, topic
        self.deleted: list[int] = []
        self.trouble: Exception | None = None
        monkeypatch.setattr(leftovers, "list_offsets", self._list)
        monkeypatch.setattr(leftovers, "follow_log_start", self._follow)

    async def topics(self, _names: Any) -> dict[str, Any]:
        """As the cluster's."""
        return {} if self.topic.int == 0 else {"t": SimpleNamespace(id=self.topic)}

    async def _list(self, _cluster: Any, at: dict[TopicPartition, int], **_: Any) -> dict[TopicPartition, ListedOffset]:
        if self.trouble is not None:
            raise self.trouble
        return {WHERE: ListedOffset(self.start if at[WHERE] == EARLIEST else self.end, error=0)}

    async def _follow(self, _cluster: Any, _where: TopicPartition, start: int, topic_id: UUID) -> None:
        assert topic_id == MEANT
        self.deleted.append(start)

    async def clear(self, first: int = 50, *, known: UUID = MEANT) -> list[int]:
        """Delete, and say what."""
        record = PartitionRecord("m", "t", 0, PartitionState.STOPPED, first_offset=first, destination_topic_id=known)
        await delete_filler(cast("Cluster", self), WHERE, record, within_s=0.2)
        return self.deleted


@pytest.mark.parametrize(
    ("start", "end", "deleted"), [(0, 100, [50]), (0, 20, [20]), (50, 100, []), (60, 100, []), (20, 20, [])]
)
async def test_filler_is_deleted_as_far_as_the_log_goes(
    monkeypatch: pytest.MonkeyPatch, start: int, end: int, deleted: list[int]
) -> None:
    """A prefix that was filled in part is gone, too; what starts late enough is left alone."""
    assert await World(monkeypatch, start=start, end=end).clear() == deleted


@pytest.mark.parametrize(
    ("topic", "known", "deleted"),
    [(MEANT, MEANT, [50]), (UUID(int=8), MEANT, []), (NO_TOPIC_ID, MEANT, []), (MEANT, NO_TOPIC_ID, [])],
)
async def test_another_topic_of_that_name_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, topic: UUID, known: UUID, deleted: list[int]
) -> None:
    """It is somebody else's by now; where topics have no ids, that cannot be told."""
    assert await World(monkeypatch, topic=topic).clear(known=known) == deleted


@pytest.mark.parametrize("trouble", [RetryLater("no leader"), TimeoutError()])
async def test_a_destination_in_trouble_is_no_reason_to_fail(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, trouble: Exception
) -> None:
    """It is said, with the offset below which something is left."""
    world = World(monkeypatch)
    world.trouble = trouble
    assert await world.clear() == []
    assert "the filler below offset 50 is not deleted" in caplog.text


async def test_what_is_open_is_left_to_its_timeout_where_it_cannot_be_aborted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A coordinator that does not answer must not hold up a stop."""
    monkeypatch.setattr(leftovers, "ABORT_WITHIN_S", 0.05)
    asked: list[str] = []

    async def never(_cluster: Any, fill_id: str) -> None:
        asked.append(fill_id)
        await asyncio.sleep(60)

    monkeypatch.setattr(leftovers, "abort_long_run", never)
    await end_open(cast("Cluster", None), WHERE, "fill")
    assert asked == ["fill"]
    assert "left to its timeout" in caplog.text
