"""What a group lacks at the destination, and why it may be left alone."""

import pytest

from twinlog.names import TopicPartition
from twinlog.sync.groups import Committed, GroupPlan, clamp, plan, refusal
from twinlog.sync.topics import Span
from twinlog.wire.ops_groups import ListedGroup

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


def test_other_topics_are_left_alone_and_unread_logs_are_named() -> None:
    """A partition whose log cannot be read waits for the next refresh."""
    assert plan({TP: Committed(12)}, {}, {TP: LOG}, {"other"}) == GroupPlan({})
    assert plan({TP: Committed(12)}, {}, {}, {"t"}) == GroupPlan({}, (TP,))


@pytest.mark.parametrize(
    ("here", "words"),
    [
        (ListedGroup("g", "share", "Empty", "share"), "GroupIdNotFoundException"),
        (ListedGroup("g", "consumer", "Stable", "consumer"), "has members"),
        (ListedGroup("g", "consumer", "PreparingRebalance", "classic"), "has members"),
    ],
)
def test_a_group_that_is_something_else_or_lives_at_the_destination_is_refused(here: ListedGroup, words: str) -> None:
    """Of a clash both ways out are named."""
    reason = refusal("g", ListedGroup("g", "consumer", "Empty", "classic"), here)
    assert reason is not None
    assert words in reason
    assert (here.kind == "share") == ("mirror.groups.exclude" in reason)


def test_an_empty_or_unknown_group_at_the_destination_is_no_hindrance() -> None:
    """Nor is one that a client assigned by hand, or an old broker that tells no state."""
    group = ListedGroup("g", "", "Empty", "classic")
    assert refusal("g", group, None) is None
    assert refusal("g", group, group) is None
    assert refusal("g", group, ListedGroup("g", "consumer", "", "")) is None


def test_groups_of_other_kinds_at_the_source_are_listed() -> None:
    """Share, streams and Connect's groups are no consumer groups."""
    for kind in ("share", "streams"):
        reason = refusal("g", ListedGroup("g", kind, "Empty", kind), None)
        assert reason == f"It is a {kind} group at the source; only consumer groups are synced."
    assert refusal("g", ListedGroup("g", "connect", "Stable", "classic"), None) is not None
