"""Which mirrored topics have grown, and which are no longer what was started."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from twinlog.control.lifecycle import DesiredState
from twinlog.control.records import TopicRecord
from twinlog.sync.refresh import Grown, topics_plan

ID, OTHER, OURS = UUID(int=1), UUID(int=2), UUID(int=3)
RECORD = TopicRecord("m", "t", DesiredState.MIRRORING, ID, OURS, 2)


def info(partitions: int, topic_id: UUID = ID) -> dict[str, Any]:
    """The topic as one cluster tells it."""
    return {"t": SimpleNamespace(id=topic_id, partitions=dict.fromkeys(range(partitions)))}


@pytest.mark.parametrize(
    ("there", "here", "grown"),
    [(2, 2, ()), (3, 2, (Grown(RECORD, 3, add=True),)), (3, 3, (Grown(RECORD, 3, add=False),))],
)
def test_a_topic_grows_with_its_source(there: int, here: int, grown: tuple[Grown, ...]) -> None:
    """Where the destination has the partitions already, only the record follows."""
    assert topics_plan([RECORD], info(there), info(here, OURS), ()) == (grown, ())


@pytest.mark.parametrize(
    ("theirs", "ours", "words"),
    [
        (info(2, OTHER), info(2, OURS), "deleted and created again"),
        (info(2), {}, "The destination topic is deleted"),
        (info(2), info(3, OURS), "by hand"),
        (info(3), info(4, OURS), "by hand"),
    ],
)
def test_what_is_no_longer_the_twin_is_named(theirs: dict[str, Any], ours: dict[str, Any], words: str) -> None:
    """And it is not grown."""
    grown, (skipped,) = topics_plan([RECORD], theirs, ours, ())
    assert not grown
    assert (skipped.kind, skipped.name) == ("topic", "t")
    assert words in skipped.reason


def test_a_topic_counts_as_deleted_at_the_second_refresh_that_misses_it() -> None:
    """One answer may come from a broker that has not heard of it yet."""
    assert topics_plan([RECORD], {}, info(2, OURS), ()) == ((), ())
    _, (skipped,) = topics_plan([RECORD], {}, info(2, OURS), {"t"})
    assert skipped.reason == "The source topic is deleted."
