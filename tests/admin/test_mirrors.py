"""The calls that only look: answered from the state, with the age of what they tell."""

import time
from typing import Any

import pytest

from twinlog.admin import mirrors
from twinlog.admin.mirrors import MirrorAdmin
from twinlog.admin.results import StartMirrorTopicsResult
from twinlog.control.describe import List
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import (
    NO_TOPIC_ID,
    Figure,
    MirrorRecord,
    PartitionRecord,
    ProgressRecord,
    TopicRecord,
    WorkerRecord,
)
from twinlog.errors import ClusterMirrorAlreadyExists, InvalidConfig, InvalidRequest, UnknownClusterMirror
from twinlog.names import TopicPartition


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> MirrorAdmin:
    """An admin of a destination with one mirror of three partitions; one has figures that are a minute old."""
    now_ms = time.time_ns() // 1_000_000
    image = Image(
        [
            MirrorRecord("m", {"bootstrap.servers": "a:1", "mirror.failed.retry.max.attempts": "4"}, "S"),
            TopicRecord("m", "t", DesiredState.MIRRORING, NO_TOPIC_ID, NO_TOPIC_ID, 3),
            PartitionRecord("m", "t", 0, PartitionState.MIRRORING),
            PartitionRecord("m", "t", 2, PartitionState.FAILED, error="broken"),
            MirrorRecord("n", {"bootstrap.servers": "b:1"}, "R"),
            TopicRecord("n", "u", DesiredState.STOPPED, NO_TOPIC_ID, NO_TOPIC_ID, 2),
            PartitionRecord("n", "u", 0, PartitionState.STOPPED, last_mirrored_offset=7),
            PartitionRecord("n", "u", 1, PartitionState.STOPPED),
            TopicRecord("gone", "v", DesiredState.STOPPED, NO_TOPIC_ID, NO_TOPIC_ID, 1),
            WorkerRecord("w", "host", 1, 0, now_ms),
            ProgressRecord(
                1, "w", now_ms - 60_000, (Figure("m", "t", 0, 0, 9, 8, 0, 7, waiting_for_transaction=False),)
            ),
        ]
    )

    async def load(_log: Any) -> Image:
        return image

    async def open_log(_cluster: Any, *, create: bool) -> Any:
        assert not create

    monkeypatch.setattr(mirrors.state, "read", load)
    monkeypatch.setattr(mirrors.state, "open_log", open_log)
    cluster: Any = None
    return MirrorAdmin(cluster)


async def test_describe_tells_how_far_its_figures_can_be_trusted(admin: MirrorAdmin) -> None:
    """The oldest figure of what is under way, what has none, and each mirror's own bound on retries."""
    result = await admin.describe_mirrors(source_cluster_id="S")
    assert [(p.partition, p.lag) for p in result.partitions] == [(0, 1), (1, -1), (2, -1)]
    assert 59_000 < result.figures_age_ms < 65_000
    assert (result.without_figures, result.live_workers, result.retry_max_attempts) == (1, 1, {"m": 4})
    assert [row.mirror for row in (await admin.describe_mirrors(topics=["u", "v.*"])).partitions] == ["gone", "n", "n"]
    failed = await admin.describe_mirrors(["m"], failed=True)
    assert [p.error_message for p in failed.partitions] == ["broken"]
    assert failed.figures_age_ms == -1
    with pytest.raises(UnknownClusterMirror):
        await admin.describe_mirrors(["nope"])


async def test_describe_of_a_source_cluster_tells_up_to_where_it_was_mirrored(admin: MirrorAdmin) -> None:
    """Of what is at rest and known; a topic whose mirror is gone is nobody's, and in nobody's way."""
    result = await admin.describe_mirrors(source_cluster_id="R")
    assert [(row.mirror, row.partition) for row in result.partitions] == [("n", 0), ("n", 1)]
    assert result.last_mirrored_positions == {TopicPartition("u", 0): 7} == await admin.last_mirrored_positions("R")
    assert await admin.last_mirrored_positions("") == {}
    assert (await admin.describe_mirrors()).last_mirrored_positions == {}


async def test_list_filters_by_mirror_source_and_state(admin: MirrorAdmin) -> None:
    """All by default, with the topics that are active."""
    assert [listing.mirror for listing in await admin.list_mirrors()] == ["m", "n"]
    assert await admin.list_mirrors(List(mirror="nope")) == ()
    (listing,) = await admin.list_mirrors(List(source_cluster_id="R"))
    assert (listing.mirror, listing.topics) == ("n", ())
    (listing,) = await admin.list_mirrors(List(source_cluster_id="R", desired={DesiredState.STOPPED}))
    assert listing.topics == ("u",)


async def test_what_is_wrong_in_a_creation_is_found_before_anything_is_asked_or_made(admin: MirrorAdmin) -> None:
    """Name and configs first, then whether the name is taken; no cluster is contacted for that."""
    with pytest.raises(InvalidRequest):
        await admin.create_mirror("a/b", {"bootstrap.servers": "a:1"})
    with pytest.raises(InvalidConfig):
        await admin.create_mirror("new", {})
    with pytest.raises(ClusterMirrorAlreadyExists):
        await admin.create_mirror("m", {"bootstrap.servers": "a:1"})


async def test_configs_are_described_by_mirror_and_source(admin: MirrorAdmin) -> None:
    """As `describe_configs` of the state has them; a mirror that does not exist is an error."""
    assert [described.mirror for described in await admin.describe_configs()] == ["m", "n"]
    (described,) = await admin.describe_configs(["m", "n"], source_cluster_id="R")
    assert (described.mirror, described.configs[0].value) == ("n", "b:1")
    with pytest.raises(UnknownClusterMirror):
        await admin.describe_configs(["nope"])


async def test_a_start_tells_what_matched_nothing(admin: MirrorAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and regexes that found no topic, whatever became of it; but for what the same start excludes."""
    outcome = StartMirrorTopicsResult(
        "m", started=("a.b",), already=("c1",), excluded=("d1",), failed={"e": InvalidRequest("No.")}
    )

    async def start_topics(*_: Any, **__: Any) -> StartMirrorTopicsResult:
        return outcome

    monkeypatch.setattr(mirrors, "start_topics", start_topics)
    given = ("a.b", "axb", "a.*", "c[0-9]", "d.*", "e", "f.*", "g", "h.*")
    result = await admin.start_mirror_topics("m", given, exclude=["h.*"])
    assert result.unmatched == ("axb", "f.*", "g")
