"""What a copier does about partitions of the destination that have too few replicas in sync."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.names import TopicPartition
from twinlog.reo.copier import Copier
from twinlog.reo.positions import Place, Position
from twinlog.reo.replicas import Replicas
from twinlog.reo.sender import Mark, NotSent, Refusal
from twinlog.reo.stage import Part
from twinlog.wire import codes

TARGETS = [TopicPartition("t-copy", number) for number in range(2)]
LACKING = Replicas(TARGETS[1], 1, (1, 3), (1,), 2)


@dataclass(slots=True, eq=False, kw_only=True)
class SomePart(Part):
    """Nothing is written down of it here."""

    def records(self, error: str) -> dict[Place, Position]:
        """None."""
        raise AssertionError(error)


def copier_of(short: list[Replicas], *, holding: list[Replicas] | None = None) -> tuple[Copier[Any], Any]:
    """A copier of two partitions, and its stage: what a look at the destination's replicas finds."""
    stage = SimpleNamespace(
        name="direct",
        share=0,
        transactional_id="copy-0",
        settings=SimpleNamespace(commit_interval_ms=100),
        short={},
        enlisted=[],
        positions=SimpleNamespace(where=TopicPartition("copy-positions", 0)),
        target_of=lambda part: TopicPartition("t-copy", part.where.partition),
        found=short,
    )

    async def look() -> None:
        stage.short = {one.where: one for one in stage.found}

    async def holds() -> list[Replicas]:
        return holding or []

    async def enlist(_: object, targets: Any) -> None:
        stage.enlisted.append(set(targets))

    stage.look_at_replicas, stage.what_holds, stage.enlist = look, holds, enlist
    copier: Copier[Any] = Copier(stage)  # type: ignore[arg-type]  # stands for a stage
    copier._parts = [
        SomePart(where=TopicPartition("t", number), topic_id="", target="t-copy", position=5) for number in range(2)
    ]
    return copier, stage


async def test_a_partition_that_lacks_replicas_waits_alone_and_goes_on_by_itself() -> None:
    """Without having been refused anything; the other one is not touched."""
    copier, stage = copier_of([LACKING])
    await stage.look_at_replicas()
    copier._set_aside()
    copier._set_aside()
    first, second = copier.facts()
    assert (first.error, second.error) == ("", f"t-1: {LACKING}")
    assert copier._parts[1].failures == 1
    assert copier.too_few_replicas() == [LACKING]
    stage.found = []
    await stage.look_at_replicas()
    copier._set_aside()
    assert [fact.error for fact in copier.facts()] == ["", ""]
    assert copier._parts[1].again_at == 0.0


async def test_what_lacks_replicas_gets_into_no_transaction() -> None:
    """Neither by itself nor together with what the last one held; a fresh look decides."""
    copier, stage = copier_of([LACKING])
    await stage.look_at_replicas()
    copier._written_before = set(TARGETS)
    sender: Any = SimpleNamespace(producer=None)
    refusal = Refusal(codes.NONE, "", TopicPartition("t", 1), Mark(5, 5), 100, 2, TARGETS[1])
    with pytest.raises(NotSent) as raised:
        await copier._enlisted(sender, TARGETS[1], refusal)
    told = raised.value.refusal
    assert told is not None
    assert (told.code, told.message) == (codes.NOT_ENOUGH_REPLICAS, str(LACKING))
    await copier._enlisted(sender, TARGETS[0], refusal)
    assert stage.enlisted == [{TARGETS[0], stage.positions.where}]
    stage.found = []
    await copier._enlisted(sender, TARGETS[1], refusal)
    assert stage.enlisted[1] == {*TARGETS, stage.positions.where}


async def test_what_holds_all_of_it_is_told_until_it_goes_on() -> None:
    """By every partition, and as the reason why it is not ready."""
    copier, _ = copier_of([], holding=[LACKING])
    await copier.look_for_holdup()
    assert "The transaction of copy-0 cannot end" in copier.trouble
    assert all(str(LACKING) in fact.error for fact in copier.facts())
    assert copier.too_few_replicas() == [LACKING]
    copier._all_is_well()
    assert (copier.trouble, copier.holdup) == ("", "")
    assert [fact.error for fact in copier.facts()] == ["", ""]


async def test_a_refusal_for_want_of_replicas_says_which_are_away() -> None:
    """Only the partition whose batch it was waits."""
    copier, _ = copier_of([LACKING])
    refusal = Refusal(codes.NOT_ENOUGH_REPLICAS, "", TopicPartition("t", 1), Mark(5, 5), 100, 2, TARGETS[1])
    copier.stage.named = lambda part, _: (part.where, part.target)  # type: ignore[method-assign]
    assert await copier._concerns_one(NotSent("refused", refusal))
    assert "in sync: 1), and min.insync.replicas is 2. Bring broker 3 back" in copier.facts()[1].error
    assert copier.facts()[0].error == ""
    assert not await copier._concerns_one(NotSent("refused", refusal._replace(source=None)))
