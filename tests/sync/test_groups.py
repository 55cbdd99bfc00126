"""What a group lacks at the destination, and what is said of a group of which nothing is synced."""

import pytest

from twinlog.control.records import Skipped
from twinlog.names import TopicPartition
from twinlog.sync.group_rules import GroupPlan, Told, answer, clamp, clash, plan, refusal, summed
from twinlog.sync.topics import Span
from twinlog.wire.ops_groups import Committed, ListedGroup

TP = TopicPartition("t", 0)
LOG = Span(10, 20)


@pytest.mark.parametrize(
    ("offset", "kept"),
    [(10, Committed(10, "n")), (20, Committed(20, "n")), (9, Committed(10)), (21, Committed(20)), (0, Committed(10))],
)
def test_an_offset_stays_within_the_log_and_loses_its_note_when_moved(offset: int, kept: Committed) -> None:
    """The edges themselves are within it."""
    assert clamp(Committed(offset, "n"), LOG) == kept


def test_only_what_differs_is_committed() -> None:
    """So an idle refresh writes nothing; a note counts, and going back does, too."""
    logs = {TP: LOG}
    assert plan({TP: Committed(12)}, {TP: Committed(12)}, logs, {"t"}) == GroupPlan({})
    assert plan({TP: Committed(12, "n")}, {TP: Committed(12)}, logs, {"t"}).commits == {TP: Committed(12, "n")}
    assert plan({TP: Committed(12)}, {TP: Committed(15)}, logs, {"t"}).commits == {TP: Committed(12)}


def test_a_group_that_is_ahead_stays_there_where_going_back_is_switched_off() -> None:
    """It is named; what is behind or new is brought over all the same, and an equal offset is no news."""
    two, three = TopicPartition("t", 2), TopicPartition("t", 3)
    theirs = {TP: Committed(12), two: Committed(12), three: Committed(12)}
    ours = {TP: Committed(15), two: Committed(11)}
    planned = plan(theirs, ours, dict.fromkeys(theirs, LOG), {"t"}, backwards=False)
    assert planned == GroupPlan({two: Committed(12), three: Committed(12)}, ahead=(TP,))
    assert planned.left == "t-0: ahead at the destination, and not set back."
    assert plan(theirs, theirs, dict.fromkeys(theirs, LOG), {"t"}, backwards=False) == GroupPlan({})


def test_other_topics_are_left_alone_and_unread_logs_are_named() -> None:
    """A partition whose log cannot be read waits for the next refresh; a group of other topics only is no news."""
    other = TopicPartition("other", 0)
    assert plan({TP: Committed(12)}, {}, {TP: LOG}, {"other"}) == GroupPlan({})
    planned = plan({TP: Committed(12), other: Committed(1)}, {}, {}, {"t"})
    assert planned == GroupPlan({}, (TP,), others=("other",))
    assert planned.left == (
        "t-0: the log at the destination could not be read this time. "
        "Its offsets in topics that are not mirrored here are left alone: other."
    )


@pytest.mark.parametrize(
    ("here", "words"),
    [
        (ListedGroup("g", "share", "Empty", "share"), "GroupIdNotFoundException"),
        (ListedGroup("g", "connect", "Empty", "classic"), "GroupIdNotFoundException"),
        (ListedGroup("g", "consumer", "Stable", "consumer"), "has members"),
        (ListedGroup("g", "consumer", "PreparingRebalance", "classic"), "has members"),
    ],
)
def test_a_group_that_is_something_else_or_lives_at_the_destination_is_refused(here: ListedGroup, words: str) -> None:
    """Of a clash both ways out are named."""
    reason = refusal("g", ListedGroup("g", "consumer", "Empty", "classic"), here)
    assert words in reason
    clashing = here.kind != "consumer"
    assert (f"Delete the {here.kind} group" in reason, "mirror.groups.exclude" in reason) == (clashing, clashing)


def test_share_groups_clash_and_live_in_the_same_way() -> None:
    """A share group may take an empty share group's place, and no other's."""
    there = ListedGroup("g", "share", "Stable", "share")
    assert not refusal("g", there, None)
    assert not refusal("g", there, ListedGroup("g", "share", "Empty", "share"))
    assert "has members" in refusal("g", there, there)
    assert refusal("g", there, ListedGroup("g", "consumer", "Empty", "classic")) == clash("g", "share", "consumer")


def test_an_empty_or_unknown_group_at_the_destination_is_no_hindrance() -> None:
    """Nor is one that a client assigned by hand, one of the other protocol, or an old broker that tells no state."""
    group = ListedGroup("g", "", "Empty", "classic")
    assert not refusal("g", group, None)
    assert not refusal("g", group, group)
    assert not refusal("g", group, ListedGroup("g", "consumer", "", ""))
    assert not refusal("g", group, ListedGroup("g", "consumer", "Empty", "consumer"))


def test_groups_of_other_kinds_at_the_source_are_listed() -> None:
    """Streams and Connect's groups are no consumer groups."""
    reason = refusal("g", ListedGroup("g", "streams", "Empty", "streams"), None)
    assert reason == "It is a streams group at the source; only consumer groups and share groups are synced."
    assert refusal("g", ListedGroup("g", "connect", "Stable", "classic"), None)


@pytest.mark.parametrize(
    ("codes", "words", "failed"),
    [
        ({TP: 0}, "", False),
        ({TP: 25}, "has members", False),
        ({TP: 68}, "has members", False),
        ({TP: 69}, "GroupIdNotFoundException", True),
        ({TP: 0, TopicPartition("t", 1): 12}, "its offset for t-1 (OFFSET_METADATA_TOO_LARGE, error 12)", True),
        ({TP: 3, TopicPartition("t", 1): 3}, "its offset for t-0 and 1 more (UNKNOWN_TOPIC_OR_PARTITION", True),
    ],
)
def test_an_answer_to_a_commit_becomes_a_reason(codes: dict[TopicPartition, int], words: str, *, failed: bool) -> None:
    """A group that came to life meanwhile is no failure; what the broker refused is, with partition and code."""
    reason, counted = answer("g", "consumer", "share or streams", codes)
    assert (words in reason, bool(reason), counted) == (True, bool(words), failed)


def test_what_was_left_alone_as_a_whole_is_told_first() -> None:
    """The list that is stored is cut where it is long."""
    done = summed([Told("a", synced=True, reason="part"), Told("b", reason="whole", failed=True), Told("c")])
    assert done.skipped == (Skipped("group", "b", "whole"), Skipped("group", "a", "part"))
    assert (done.synced, done.errors) == (("a",), 1)
