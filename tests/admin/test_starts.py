"""The offsets with which a mirror was told to begin, as `twinlog verify` finds them in the destination's state."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from twinlog.admin import starts
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState
from twinlog.control.records import Change, MirrorRecord, TopicRecord
from twinlog.errors import AuthorizationFailed, ClusterMirrorAuthorizationFailed, Unreachable
from twinlog.state.log import StateLog
from twinlog.wire.cluster import TopicInfo

SOURCE, HERE = UUID(int=1), UUID(int=2)
CHOSEN = TopicRecord("m", "t", DesiredState.STOPPED, SOURCE, HERE, 3, start_at="latest", start_offsets=(60, 100))


class FakeCluster:
    """A cluster with topic t."""

    def __init__(self, cluster_id: str, topic_id: UUID) -> None:
        self.cluster_id = cluster_id
        self._id = topic_id

    async def topics(self, _names: list[str]) -> dict[str, TopicInfo]:
        """As `Cluster.topics`."""
        return {"t": TopicInfo("t", self._id, 0, internal=False)}


async def found(
    monkeypatch: pytest.MonkeyPatch, *records: Change, shards: int = 50, error: bool = False, slow_s: float = 0.0
) -> Any:
    """Ask for topic t of clusters S and D, where D's state holds these records."""

    async def load(*, timeout_s: float) -> Image:
        assert timeout_s > 0
        await asyncio.sleep(slow_s)
        if error:
            raise AuthorizationFailed("No READ.")
        return Image(records)

    async def open_log(_cluster: Any, *, create: bool) -> Any:
        assert not create
        return SimpleNamespace(shards=shards, load=load)

    monkeypatch.setattr(StateLog, "open", open_log)
    source: Any = FakeCluster("S", SOURCE)
    destination: Any = FakeCluster("D", HERE)
    return await starts.chosen_starts(source, destination, "t")


async def test_the_offsets_are_those_of_these_two_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the mirror of this source, in any desired state; a later partition has none."""
    mirror = MirrorRecord("m", {}, "S")
    assert await found(monkeypatch, mirror, CHOSEN) == {0: 60, 1: 100}
    assert await found(monkeypatch, MirrorRecord("m", {}, "R"), CHOSEN) == {}
    assert await found(monkeypatch, mirror, replace(CHOSEN, source_topic_id=UUID(int=9))) == {}
    assert await found(monkeypatch, mirror, replace(CHOSEN, destination_topic_id=UUID(int=9))) == {}
    assert await found(monkeypatch, mirror, replace(CHOSEN, start_offsets=())) == {}
    assert await found(monkeypatch, CHOSEN) == {}


async def test_where_there_is_no_state_nobody_chose_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A destination without mirrors is no trouble."""
    assert await found(monkeypatch, MirrorRecord("m", {}, "S"), CHOSEN, shards=0) == {}


async def test_a_state_that_cannot_be_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rights that are needed, or after how long nothing came; whoever asks says what that means."""
    with pytest.raises(ClusterMirrorAuthorizationFailed, match=r"No READ\. The rights needed at the destination are"):
        await found(monkeypatch, MirrorRecord("m", {}, "S"), CHOSEN, error=True)
    monkeypatch.setattr(starts, "WITHIN_S", 0.05)
    with pytest.raises(Unreachable, match=r"could not be read in 0\.05 s"):
        await found(monkeypatch, MirrorRecord("m", {}, "S"), CHOSEN, slow_s=5.0)
