"""Whether the topics on both sides are still the ones that were meant."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from twinlog.errors import PartitionFailed, RetryLater
from twinlog.relay.tailcheck import Sides
from twinlog.relay.topic_ids import TopicIds

SOURCE, DESTINATION, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)
UNKNOWN = 3


class _Side:
    """A cluster that has one topic, or none."""

    def __init__(self, topic_id: UUID) -> None:
        self.info: Any = SimpleNamespace(id=topic_id, error=0, partitions={0: None})

    async def topic(self, _name: str) -> Any:
        """What it says of the topic."""
        return self.info


class _Bench:
    """Both sides, a clock, and the check between them."""

    def __init__(self, apart_s: float = 10.0) -> None:
        self.now = 0.0
        self.source, self.destination = _Side(SOURCE), _Side(DESTINATION)
        sides: Any = Sides(self.source, self.destination)  # type: ignore[arg-type]  # both are played
        self.ids = TopicIds(sides, "t", source=SOURCE, destination=DESTINATION, apart_s=apart_s, clock=lambda: self.now)


async def test_a_deletion_at_the_source_is_believed_after_a_refresh() -> None:
    """Metadata of one broker may lag; two looks that are apart agree."""
    bench = _Bench()
    bench.source.info = None
    for bench.now in (0.0, 5.0, 9.9):
        with pytest.raises(RetryLater):
            await bench.ids.check()
    bench.now = 10.0
    with pytest.raises(PartitionFailed) as failed:
        await bench.ids.check()
    assert str(failed.value) == "The source topic is deleted."
    assert not failed.value.retriable


async def test_a_topic_that_is_seen_again_is_not_deleted() -> None:
    """The first look is forgotten then."""
    bench = _Bench()
    there, gone = bench.source.info, SimpleNamespace(error=UNKNOWN)
    for bench.now, bench.source.info in ((0.0, gone), (9.0, there), (10.0, gone)):
        if bench.source.info is there:
            await bench.ids.check()
        else:
            with pytest.raises(RetryLater):
                await bench.ids.check()


async def test_a_deletion_at_the_destination_says_what_to_do() -> None:
    """The operator may have meant to begin anew."""
    bench = _Bench()
    bench.destination.info = None
    with pytest.raises(RetryLater):
        await bench.ids.check()
    bench.now = 1.0
    with pytest.raises(PartitionFailed, match=r"destination topic is deleted\. Stop the topic, then start it again"):
        await bench.ids.check()


@pytest.mark.parametrize("side", ["source", "destination"])
async def test_a_recreated_topic_is_named_with_both_ids(side: str) -> None:
    """At once: an id says it for sure."""
    bench = _Bench()
    getattr(bench, side).info.id = OTHER
    with pytest.raises(PartitionFailed, match=f"the {side} topic was deleted and created again: its id was .*{OTHER}"):
        await bench.ids.check()


async def test_more_partitions_at_the_destination_are_named_with_both_counts() -> None:
    """Fewer are only behind; more were added by hand, and the source may yet follow."""
    bench = _Bench()
    bench.source.info.partitions = {0: None, 1: None}
    await bench.ids.check()
    bench.destination.info.partitions = {0: None, 1: None, 2: None}
    with pytest.raises(RetryLater):
        await bench.ids.check()
    bench.now = 1.5
    with pytest.raises(PartitionFailed, match="has 3 partitions, the source topic 2") as failed:
        await bench.ids.check()
    assert failed.value.retriable


@pytest.mark.parametrize(("side", "right"), [("source", "Grant READ on"), ("destination", "Grant READ and WRITE on")])
async def test_a_topic_that_may_not_be_seen_is_not_taken_for_deleted(side: str, right: str) -> None:
    """The right is named, and a later look may find it granted."""
    bench = _Bench()
    getattr(bench, side).info = SimpleNamespace(error=29)
    with pytest.raises(PartitionFailed, match=rf"{right} topic t at the {side}") as failed:
        await bench.ids.check()
    assert failed.value.retriable
