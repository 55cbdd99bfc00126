"""Up to where both sides of a topic are known to hold the same; what lies beyond is compared on real clusters."""

from dataclasses import replace
from uuid import UUID

import pytest

from twinlog.admin.divergence import NOTHING_SHARED, Shared, Side, Tail, shared_until
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import Change, MirrorRecord, PartitionRecord, TopicRecord
from twinlog.names import TopicPartition

WHERE = TopicPartition("t", 0)
IDS = {"S": UUID(int=1), "D": UUID(int=2), "T": UUID(int=3)}


def mirrored(source: str, here: str, up_to: int, *, source_id: UUID | None = None) -> list[Change]:
    """What the state of cluster `here` has of topic t, mirrored from `source` and stopped."""
    mirror, theirs = f"from-{source}", source_id or IDS[source]
    stored = PartitionRecord(
        mirror,
        "t",
        0,
        PartitionState.STOPPED,
        checked_offset=up_to,
        last_mirrored_offset=up_to,
        source_topic_id=theirs,
        destination_topic_id=IDS[here],
    )
    return [
        MirrorRecord(mirror, {}, source),
        TopicRecord(mirror, "t", DesiredState.STOPPED, theirs, IDS[here], 1),
        stored,
    ]


@pytest.mark.parametrize(
    ("at_source", "at_destination", "until"),
    [
        ([], [], -1),
        (mirrored("D", "S", 50), [], 50),  # failback
        ([], mirrored("S", "D", 40), 40),  # the same way again
        (mirrored("D", "S", 50), mirrored("S", "D", 40), 50),
        (mirrored("T", "S", 70), mirrored("T", "D", 60), 60),  # both from a third cluster, each so far
        (mirrored("T", "S", 60), mirrored("T", "D", 70), 60),
        ([*mirrored("T", "S", 70), *mirrored("D", "S", 50)], mirrored("T", "D", 40), 50),
        (mirrored("T", "S", 70), [], -1),
        (mirrored("D", "S", 50, source_id=UUID(int=9)), [], -1),  # of a topic that was made anew since
        ([], mirrored("S", "D", 40, source_id=UUID(int=9)), -1),
        ([], mirrored("S", "D", -1), -1),
    ],
)
def test_what_either_side_has_recorded_of_these_two_topics_counts(
    at_source: list[Change], at_destination: list[Change], until: int
) -> None:
    """Both topics are meant by their ids, the clusters by theirs."""
    source = Side("S", Image(at_source), IDS["S"])
    destination = Side("D", Image(at_destination), IDS["D"])
    assert shared_until(source, destination, WHERE).until == until


def _unchecked(source: str, here: str, up_to: int, checked: int) -> Image:
    image = Image(mirrored(source, here, up_to))
    image.apply(replace(image.partitions_of(f"from-{source}", "t")[0], checked_offset=checked))
    return image


def test_what_was_never_compared_is_not_known_to_be_shared() -> None:
    """A partition that failed, or whose worker died, and then was stopped where it ended."""
    source, destination = Side("S", Image(), IDS["S"]), Side("D", Image(), IDS["D"])
    for checked in (50, -1):
        ours = Side("D", _unchecked("S", "D", 1_000_000, checked), IDS["D"])
        assert shared_until(source, ours, WHERE) == Shared(checked, same_way=True)
        assert shared_until(source, ours, WHERE).until == checked
        theirs = Side("S", _unchecked("D", "S", 1_000_000, checked), IDS["S"])
        assert shared_until(theirs, destination, WHERE).until == checked
        beside = Side("S", _unchecked("T", "S", 1_000_000, checked), IDS["S"])
        third = Side("D", Image(mirrored("T", "D", 1_000_000)), IDS["D"])
        assert shared_until(beside, third, WHERE).until == checked


def test_a_topic_that_was_made_anew_at_the_destination_shares_nothing() -> None:
    """The records are about its predecessor."""
    source = Side("S", Image(mirrored("D", "S", 50)), IDS["S"])
    destination = Side("D", Image(mirrored("S", "D", 40)), UUID(int=9))
    assert shared_until(source, destination, WHERE) == NOTHING_SHARED


def test_a_tail_tells_its_offsets_and_counts() -> None:
    """The last offset is the last one that it holds."""
    assert str(Tail(WHERE, 5, 8, 3)) == "t-0 offsets 5 to 7 (3 committed records)"
    assert str(Tail(WHERE, 5, 8, 1, 2)) == "t-0 offsets 5 to 7 (1 committed records, 2 in undecided transactions)"
