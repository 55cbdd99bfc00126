"""What list and describe answer from an image."""

from dataclasses import replace

import pytest

from twinlog.control.anew import Anew
from twinlog.control.describe import (
    RENEWED,
    Describe,
    List,
    MirrorListing,
    PartitionDescription,
    describe,
    list_mirrors,
)
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import (
    NO_TOPIC_ID,
    Figure,
    MirrorRecord,
    PartitionRecord,
    ProgressRecord,
    TopicRecord,
)
from twinlog.errors import UnknownClusterMirror
from twinlog.names import TopicPartition

NOW_MS = 10_000


def topic(mirror: str, name: str, desired: DesiredState = DesiredState.MIRRORING, partitions: int = 1) -> TopicRecord:
    """A topic's record."""
    return TopicRecord(mirror, name, desired, NO_TOPIC_ID, NO_TOPIC_ID, partitions)


def image() -> Image:
    """Two mirrors: `a` with a running, a paused and a stopped topic, `b` with none."""
    figure = Figure("a", "run", 0, 2, 110, 100, 2, 97, waiting_for_transaction=True)
    return Image(
        [
            MirrorRecord("b", {}, "T"),
            MirrorRecord("a", {"bootstrap.servers": "x:1"}, "S"),
            topic("a", "run", partitions=2),
            topic("a", "off", DesiredState.STOPPED),
            topic("a", "held", DesiredState.PAUSED),
            PartitionRecord("a", "run", 0, PartitionState.MIRRORING, last_mirrored_offset=90),
            PartitionRecord("a", "run", 2, PartitionState.FAILED, error="It broke.", retry_attempt=-1),
            PartitionRecord("a", "off", 0, PartitionState.STOPPED, last_mirrored_offset=55),
            ProgressRecord(7, "w", 9_000, (figure,)),
        ]
    )


def test_mirrors_are_listed_by_name_with_their_active_topics() -> None:
    """Topics that are stopped are not named, unless asked for."""
    listed = list_mirrors(image(), List())
    assert listed == (MirrorListing("a", "x:1", "S", ("held", "run")), MirrorListing("b", "", "T", ()))
    stopped = list_mirrors(image(), List(desired={DesiredState.STOPPED}))
    assert [listing.topics for listing in stopped] == [("off",), ()]


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (List(mirror="a"), ["a"]),
        (List(mirror="c"), []),
        (List(source_cluster_id="T"), ["b"]),
        (List(mirror="a", source_cluster_id="T"), []),
    ],
)
def test_listings_are_filtered(command: List, found: list[str]) -> None:
    """By name, by source cluster, by both."""
    assert [listing.mirror for listing in list_mirrors(image(), command)] == found


def test_a_chosen_start_is_told_for_each_partition() -> None:
    """A partition beyond those that there were then begins at its source's beginning."""
    state = image()
    state.apply(replace(topic("a", "run", partitions=2), start_at="latest", start_offsets=(7,)))
    found = describe(state, Describe(NOW_MS, {"a"}))
    told = [(row.topic, row.partition, row.start_at, row.start_offset) for row in found if row.partition < 2]
    assert told == [("held", 0, "", -1), ("off", 0, "", -1), ("run", 0, "latest", 7), ("run", 1, "latest", -1)]


def rows(**filters: object) -> list[PartitionDescription]:
    """Describe with filters."""
    return list(describe(image(), Describe(NOW_MS, **filters)))  # type: ignore[arg-type]


def test_partitions_are_described_in_order() -> None:
    """By mirror, topic and partition: those that the topic has, and those that a worker has stored beyond them."""
    assert [(row.topic, row.partition, row.state.name) for row in rows()] == [
        ("held", 0, "UNKNOWN"),
        ("off", 0, "STOPPED"),
        ("run", 0, "MIRRORING"),
        ("run", 1, "UNKNOWN"),
        ("run", 2, "FAILED"),
    ]


def test_figures_are_joined_with_their_age() -> None:
    """The source offset is the last stable one; lag counts what a read_committed reader could still get."""
    row = rows(partitions={TopicPartition("run", 0)})[0]
    assert (row.source_offset, row.destination_offset, row.lag) == (100, 97, 3)
    assert (row.source_high_watermark, row.source_log_start_offset) == (110, 2)
    assert row.waiting_for_transaction
    assert (row.figures_age_ms, row.worker) == (1_000, "w")
    assert (row.retry_attempt, row.error_message, row.last_mirror_epoch) == (0, "", -1)


def test_without_figures_the_last_mirrored_offset_is_shown_and_the_lag_is_unknown() -> None:
    """A stopped partition has no owner that publishes; what was stored at the end remains."""
    row = rows(partitions={TopicPartition("off", 0)})[0]
    assert (row.source_offset, row.destination_offset, row.lag) == (-1, 55, -1)
    assert (row.figures_age_ms, row.worker, row.waiting_for_transaction) == (-1, "", False)


def test_lag_is_never_negative() -> None:
    """A destination beyond a source figure taken earlier has lag 0, and clocks that differ make no negative age."""
    changed = image()
    figure = Figure("a", "run", 0, 0, 5, 5, 0, 6, waiting_for_transaction=False)
    changed.apply(ProgressRecord(7, "w", NOW_MS + 50, (figure,)))
    row = describe(changed, Describe(NOW_MS, partitions={TopicPartition("run", 0)}))[0]
    assert (row.lag, row.figures_age_ms) == (0, 0)


def test_a_topic_that_is_made_anew_says_so() -> None:
    """It looks as if somebody had paused it."""
    changed = image()
    paused = changed.topic("a", "held")
    assert paused is not None
    changed.apply(replace(paused, anew=Anew(1, {}).text))
    assert describe(changed, Describe(NOW_MS, partitions={TopicPartition("held", 0)}))[0].error_message == RENEWED
    assert rows(partitions={TopicPartition("held", 0)})[0].error_message == ""


def test_failed_partitions_alone() -> None:
    """With `failed`, only failed partitions, with error and retry."""
    assert [(row.partition, row.error_message, row.retry_attempt) for row in rows(failed=True)] == [
        (2, "It broke.", -1)
    ]


def test_mirrors_by_name() -> None:
    """A mirror without topics has no rows; one that does not exist is an error in the KIP's words."""
    assert rows(mirrors=["b"]) == []
    assert len(rows(mirrors=["a", "b"])) == 5
    with pytest.raises(UnknownClusterMirror, match=r"^Mirror 'c' not found$"):
        rows(mirrors=["a", "c"])
