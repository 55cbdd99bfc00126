"""The first copy of a compacted partition: when it is begun, and when it is over."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from twinlog.batch.fill import Joined, filling_tail
from twinlog.batch.records import Record, encode, frames_from
from twinlog.names import TopicPartition
from twinlog.relay import firstcopy
from twinlog.relay.firstcopy import FirstCopy, Peer
from twinlog.relay.progress import Progress
from twinlog.relay.rolling import Found
from twinlog.relay.seam import Seam
from twinlog.relay.takeover import Bounds, Copy
from twinlog.wire.codes import OFFSET_OUT_OF_RANGE
from twinlog.wire.metadata import Leader
from twinlog.wire.ops import LogChunk

WHERE = TopicPartition("t", 0)
END = 1_000
BEFORE = "segment.ms=,min.cleanable.dirty.ratio="
EMPTY = Bounds(source_start=0, source_end=END, start=0, end=0)


def batch(first: int, last: int, *, filled: bool) -> bytes:
    """A batch whose last record is the source's, and what fills the offsets before, or (cleaned) nothing there."""
    frame = frames_from(encode([Record(last, 0, b"k", b"v")], codec=0), from_offset=0)[0]
    made = Joined(0, first if filled else last, 0)
    made.add(frame, filling_tail(frame) if filled else None)
    return bytes(made.made().raw)


class World:
    """A topic on brokers `logs`, each with its own replica; records what is remembered, and what is done to configs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *nodes: int, copy: Copy | None = None) -> None:
        self.logs = {node: self.log() for node in nodes}
        self.remembered: list[Copy | str] = []
        self.others: list[Peer] = []
        self.found_now = Found(
            {
                "segment.ms": "604800000",
                "min.cleanable.dirty.ratio": "0.5",
                "cleanup.policy": "compact",
                "min.compaction.lag.ms": "0",
            },
            {},
        )
        self.seam: Seam | None = Seam(900, time.time_ns() // 1_000_000, 5_000)
        self.done: list[str] = []
        self.reads: list[tuple[int, int]] = []
        for name, value in {
            "read_log": self._read,
            "find_seam": self._find_seam,
            "LOOK_EVERY_S": 0.01,
            "PEERS_EVERY_S": 0.01,
            "PEER_WITHIN_S": 0.05,
        }.items():
            monkeypatch.setattr(firstcopy, name, value)
        monkeypatch.setattr(FirstCopy, "_rolling", self)
        side = SimpleNamespace(cluster=self, offset=self._start)
        sides = cast("Any", SimpleNamespace(source=side, destination=side))
        self.copy = FirstCopy(sides, WHERE, self, copy=copy or Copy(), max_batch_bytes=1_000_000)
        self.progress = Progress(WHERE, END, 1, 0, 0, 0)

    @staticmethod
    def log(*, cleaned_to: int = 0) -> list[bytes]:
        """A hundred batches, of which the cleaner has done those below `cleaned_to`."""
        return [batch(first, first + 9, filled=first >= cleaned_to) for first in range(0, END, 10)]

    # The cluster

    async def topics(self, _names: Sequence[str]) -> dict[str, Any]:
        """Which replicas there are."""
        return {"t": SimpleNamespace(partitions={0: SimpleNamespace(replicas=tuple(self.logs))})}

    async def _start(self, *_: Any) -> int:
        return 0

    async def _find_seam(self, *_: Any) -> Seam | None:
        return self.seam

    async def _read(self, _c: Any, _w: Any, offset: int, *, leader: Leader | None = None, **_: Any) -> LogChunk:
        node = min(self.logs) if leader is None else leader.node
        self.reads.append((node, offset))
        log = self.logs[node]
        error = 0 if log else OFFSET_OUT_OF_RANGE
        return LogChunk(memoryview(b"".join(log[offset // 10 : offset // 10 + 20])), END, END, 0, (), error)

    # The configs

    async def found(self) -> Found:
        """What is in force."""
        return self.found_now

    async def roll_after(self, roll_ms: int, nodes: Sequence[int]) -> None:
        """Taken note of."""
        self.done.append(f"roll {roll_ms % 1000} on {list(nodes)}")

    async def hasten(self) -> None:
        """Taken note of."""
        self.done.append("hasten")

    async def restore(self, text: str) -> None:
        """Taken note of."""
        self.done.append(f"restore {text}")

    # The memory

    async def copying(self, _progress: Progress, copy: Copy, note: str = "") -> None:
        """Remember."""
        self.remembered.append(note or copy)

    async def mirroring(self, _progress: Progress) -> None:
        """Remember."""
        self.remembered.append("MIRRORING")

    def peers(self) -> Sequence[Peer]:
        """The others."""
        return self.others

    async def finish(self) -> "asyncio.Task[None]":
        """Begin to finish, and give it time."""
        task = asyncio.create_task(self.copy.finish(lambda: self.progress))
        await asyncio.sleep(0.1)
        return task


async def test_what_is_to_be_filled_is_remembered_before_configs_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """And both before there is anything that fills."""
    world = World(monkeypatch, 1, 2)
    filling = await world.copy.begin(Progress(WHERE, 0, 1, 0, 0, 0), EMPTY, may_fill=True)
    assert filling is not None
    assert filling.until == 900
    assert world.remembered == [Copy(900, -1, BEFORE)]
    assert world.done == ["roll 777 on [1, 2]"]


@pytest.mark.parametrize("why", ["forbidden", "not empty", "no seam", "not fit"])
async def test_else_holes_are_markers(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """Nothing is remembered, and no config touched."""
    world = World(monkeypatch, 1)
    if why == "no seam":
        world.seam = None
    if why == "not fit":
        world.found_now = replace(world.found_now, entries={**world.found_now.entries, "min.compaction.lag.ms": "5"})
    bounds = replace(EMPTY, end=5) if why == "not empty" else EMPTY
    assert await world.copy.begin(world.progress, bounds, may_fill=why != "forbidden") is None
    assert (world.remembered, world.done, world.copy.copy.over) == ([], [], True)


async def test_configs_that_another_partition_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they were is learnt from it; where it does not tell in time, holes are markers."""
    world = World(monkeypatch, 1)
    world.found_now = replace(world.found_now, entries={**world.found_now.entries, "segment.ms": "5777"})
    assert await world.copy.begin(world.progress, EMPTY, may_fill=True) is None
    world.others = [Peer(Copy(5, -1, "segment.ms=7,min.cleanable.dirty.ratio="), active=True)]
    assert await world.copy.begin(world.progress, EMPTY, may_fill=True) is not None
    assert world.remembered == [Copy(900, -1, "segment.ms=7,min.cleanable.dirty.ratio=")]
    world.found_now = replace(world.found_now, entries={**world.found_now.entries, "segment.ms": "777"})
    world.seam = Seam(900, 0, 5_000)
    world.copy.copy = Copy()
    assert await world.copy.begin(world.progress, EMPTY, may_fill=True) is None


async def test_it_is_over_when_the_last_filling_record_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one is searched where it is not known, and remembered; then the configs are put back."""
    world = World(monkeypatch, 1, copy=Copy(900, -1, BEFORE))
    task = await world.finish()
    assert world.remembered == [Copy(900, 898, BEFORE)]
    world.logs[1] = world.log(cleaned_to=890)
    await asyncio.sleep(0.1)
    assert not task.done()
    assert world.done == ["hasten"]
    world.logs[1] = world.log(cleaned_to=900)
    await asyncio.wait_for(task, 5)
    assert world.remembered[1:] == [Copy(-1, -1, BEFORE), "MIRRORING"]
    assert world.done == ["hasten", f"restore {BEFORE}"]
    assert world.copy.copy.over


async def test_each_replica_has_to_be_clean_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that lacks the last filling record but has others, and one that is away."""
    world = World(monkeypatch, 1, 2, 3, copy=Copy(900, 898, BEFORE))
    world.logs[1] = world.log(cleaned_to=900)
    world.logs[2] = [*world.log()[:40], *world.log(cleaned_to=END)[40:]]
    world.logs[3] = []
    task = await world.finish()
    world.logs[3] = world.log(cleaned_to=900)
    await asyncio.sleep(0.1)
    assert not task.done()
    world.logs[2] = world.log(cleaned_to=900)
    await asyncio.wait_for(task, 5)
    assert world.remembered[-1] == "MIRRORING"


async def test_it_waits_for_the_position_and_for_the_other_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configs are put back by whoever is last; one that failed is not waited for, and does it itself."""
    world = World(monkeypatch, 1, copy=Copy(900, 898, BEFORE))
    world.logs[1] = world.log(cleaned_to=900)
    world.progress = replace(world.progress, position=900)
    world.others = [Peer(Copy(5, 4, BEFORE), active=True)]
    task = await world.finish()
    assert world.remembered == []
    world.progress = replace(world.progress, position=901)
    await asyncio.sleep(1)
    assert world.remembered[-1] == Copy(-1, -1, BEFORE)
    world.others = [Peer(Copy(5, 4, BEFORE), active=False)]
    await asyncio.wait_for(task, 5)
    assert (world.remembered[-1], world.done) == ("MIRRORING", ["hasten"])


async def test_a_cleaner_that_does_not_come_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, with the broker and the offset; and it goes on waiting."""
    monkeypatch.setattr(firstcopy, "SAY_AFTER_S", 0.05)
    world = World(monkeypatch, 1, copy=Copy(900, 898, BEFORE))
    task = await world.finish()
    notes = [note for note in world.remembered if isinstance(note, str)]
    assert len(notes) == 1
    assert "brokers [1] has not yet removed the record at offset 898" in notes[0]
    world.logs[1] = world.log(cleaned_to=900)
    await asyncio.wait_for(task, 5)
    assert world.remembered[-1] == "MIRRORING"


async def test_nothing_was_filled_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed right after the decision: no filling record is found, so there is nothing to wait for."""
    world = World(monkeypatch, 1, copy=Copy(900, -1, BEFORE))
    world.logs[1] = world.log(cleaned_to=END)
    await asyncio.wait_for(await world.finish(), 5)
    assert world.remembered == [Copy(-1, -1, BEFORE), "MIRRORING"]
