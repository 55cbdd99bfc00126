"""What a partition's supervisor remembers of a first copy, and what a stop makes of it; the clusters are played."""

import asyncio
from typing import Any, cast
from uuid import UUID

import pytest

from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import Change, Figure, PartitionRecord, ProgressRecord, TopicRecord, topics_life
from twinlog.errors import RetryLater
from twinlog.names import TopicPartition
from twinlog.relay.firstcopy import Peer
from twinlog.relay.progress import Progress
from twinlog.relay.rolling import Rolling
from twinlog.relay.takeover import Copy
from twinlog.service.supervisor import Supervisor, Surroundings

KEY = ("m", "t", 0)
SOURCE, HERE, FORMER = UUID(int=3), UUID(int=2), UUID(int=1)
BEFORE = "segment.ms=,min.cleanable.dirty.ratio="
COPY = Copy(90, 80, BEFORE)
PROGRESS = Progress(TopicPartition("t", 0), 95, 7, 2, 0, 3)


class Bench:
    """A supervisor whose topic is stopped, so that it does nothing of its own beyond that."""

    def __init__(self, *changes: Change) -> None:
        self.written: list[PartitionRecord] = []
        self.lookups = self
        self.cluster = None
        self.hold = asyncio.Event()
        self.hold.set()
        topic = TopicRecord("m", "t", DesiredState.STOPPED, SOURCE, HERE, 2)
        around = Surroundings(Image([topic, *changes]), *cast("Any", (self, None, None, self, None)))
        self.supervisor = Supervisor(around, KEY, settle=False)

    async def put(self, *changes: Change) -> None:
        """As the keeper does."""
        await self.hold.wait()
        self.written += [change for change in changes if isinstance(change, PartitionRecord)]

    async def offset(self, *_: Any) -> int:
        """The destination's end."""
        return 95

    async def stopped(self) -> None:
        """Wait until that is written."""
        for _ in range(500):
            if self.written and self.written[-1].state is PartitionState.STOPPED:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it did not come to that within 5 s")


def record(number: int = 0, state: PartitionState = PartitionState.LOG_ALIGNMENT, **more: Any) -> PartitionRecord:
    """What is stored of a partition of the topic."""
    more = {"destination_topic_id": HERE} | more
    return PartitionRecord("m", "t", number, state, source_topic_id=SOURCE, **more)


def left(copy: Copy) -> dict[str, Any]:
    """Fields of a record that say what is left of a copy."""
    return {"filled_to": copy.filled_to, "last_filling": copy.last_filling, "configs_before": copy.configs_before}


async def test_a_copy_is_remembered_in_log_alignment_and_forgotten_with_mirroring(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the note, while there is one; and what is remembered at the same moment by somebody else is not lost."""
    monkeypatch.setattr(Rolling, "restore", lambda *_: asyncio.sleep(0))
    bench = Bench(record())
    await bench.stopped()
    supervisor, ledger = bench.supervisor, bench.supervisor.ledger
    ledger.record = record()
    bench.hold.clear()
    writing = asyncio.gather(ledger.copying(PROGRESS, COPY, "waits"), ledger.before_long_run(PROGRESS, 9))
    await asyncio.sleep(0.01)
    bench.hold.set()
    await writing
    last = bench.written[-1]
    assert (last.state, last.error, last.long_runs) == (PartitionState.LOG_ALIGNMENT, "waits", True)
    assert left(COPY).items() <= {name: getattr(last, name) for name in left(COPY)}.items()
    assert ledger.known().copy == COPY
    await ledger.mirroring(PROGRESS)
    last = bench.written[-1]
    assert (last.state, last.error, ledger.known().copy.over) == (PartitionState.MIRRORING, "", True)
    await supervisor.cut_off()


async def test_figures_count_while_a_copy_is_under_way() -> None:
    """Else each takeover would compare all that was copied so far."""
    figure = Figure(*KEY, 0, 70, 70, 0, 70, waiting_for_transaction=False, life=topics_life(SOURCE, HERE))
    bench = Bench(ProgressRecord(1, "w", 5, (figure,)))
    checked = []
    for copy in (COPY, Copy(configs_before=BEFORE), Copy()):
        bench.supervisor.ledger.record = record(producer_id=7, checked_offset=5, **left(copy))
        checked.append(bench.supervisor.ledger.known().checked_offset)
    assert checked == [70, 70, 5]
    await bench.supervisor.cut_off()


async def test_peers_are_the_other_partitions_of_the_same_topics() -> None:
    """One that failed is not at work, and one of a topic that had the name before is none."""
    failed = record(2, PartitionState.FAILED, **left(COPY))
    former = record(3, PartitionState.MIRRORING, destination_topic_id=FORMER, **left(COPY))
    bench = Bench(record(0, **left(COPY)), record(1), failed, former)
    assert list(bench.supervisor.ledger.peers()) == [Peer(Copy(), active=True), Peer(COPY, active=False)]
    await bench.supervisor.cut_off()


@pytest.mark.parametrize("fails", [False, True])
async def test_a_stop_puts_the_configs_back(monkeypatch: pytest.MonkeyPatch, *, fails: bool) -> None:
    """Where that cannot be done it stops all the same; what they were stays in the record, for a start that follows."""
    asked: list[str] = []

    async def restore(_self: Rolling, text: str) -> None:
        asked.append(text)
        if fails:
            raise RetryLater("away")

    monkeypatch.setattr(Rolling, "restore", restore)
    bench = Bench(record(**left(COPY)))
    await bench.stopped()
    assert asked == [BEFORE]
    assert bench.supervisor.ledger.known().copy == COPY
    await bench.supervisor.cut_off()
