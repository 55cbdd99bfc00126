"""What is remembered of a partition whose writes are cut off; the keeper is played."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import NO_TOPIC_ID, MirrorRecord, PartitionRecord, TopicRecord
from twinlog.errors import GiveWay
from twinlog.service.ledger import PartitionLedger


class _Keeper:
    """Commits when the test says so."""

    def __init__(self) -> None:
        self.asked: list[PartitionRecord] = []
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def put(self, change: PartitionRecord) -> None:
        """As the real one: asked at once, answered later."""
        self.asked.append(change)
        await asyncio.shield(self.answer)


@pytest.fixture
async def keeper() -> _Keeper:
    """A keeper that has not answered."""
    return _Keeper()


@pytest.fixture
async def ledger(keeper: Any) -> PartitionLedger:
    """The ledger of a partition of a topic that was just started."""
    topic = TopicRecord("m", "t", DesiredState.MIRRORING, NO_TOPIC_ID, NO_TOPIC_ID, 1)
    return PartitionLedger(Image([MirrorRecord("m", {}, "S"), topic]), keeper, ("m", "t", 0))


async def _cut_off(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_was_asked_to_be_stored_is_taken_over_although_its_writer_was_cut_off(
    keeper: _Keeper, ledger: PartitionLedger
) -> None:
    """Also where that is in the very turn in which it was asked; what was learnt meanwhile is kept."""
    writing = asyncio.create_task(ledger.write(PartitionState.LOG_ALIGNMENT, producer_id=7, producer_epoch=1))
    await asyncio.sleep(0)
    await _cut_off(writing)
    assert [(one.state, one.producer_id) for one in keeper.asked] == [(PartitionState.LOG_ALIGNMENT, 7)]
    assert ledger.record.state is PartitionState.UNKNOWN
    ledger.record = replace(ledger.record, last_mirrored_offset=5, producer_epoch=2)
    keeper.answer.set_result(None)
    await asyncio.sleep(0.01)
    record = ledger.record
    assert (record.state, record.producer_id) == (PartitionState.LOG_ALIGNMENT, 7)
    assert (record.last_mirrored_offset, record.producer_epoch) == (5, 2)


async def test_a_write_that_waits_for_its_turn_is_not_made_once_it_is_cut_off(
    keeper: _Keeper, ledger: PartitionLedger
) -> None:
    """Its partition may be another worker's by then; and the one before it lets the next one in."""
    first = asyncio.create_task(ledger.note(producer_id=7))
    second = asyncio.create_task(ledger.note(producer_id=8))
    await asyncio.sleep(0.01)
    await _cut_off(second)
    await _cut_off(first)
    keeper.answer.set_result(None)
    await asyncio.sleep(0.01)
    await ledger.note(spare_producer_id=9)
    assert [(one.producer_id, one.spare_producer_id) for one in keeper.asked] == [(7, -1), (7, 9)]


async def test_a_write_that_fails_leaves_the_record_as_it_was(keeper: _Keeper, ledger: PartitionLedger) -> None:
    """Whoever writes hears of it, and the next one is let in."""
    before = ledger.record
    keeper.answer.set_exception(GiveWay("The lease is gone."))
    for _ in range(2):
        with pytest.raises(GiveWay):
            await ledger.note(producer_id=7)
    assert ledger.record == before
    assert len(keeper.asked) == 2
