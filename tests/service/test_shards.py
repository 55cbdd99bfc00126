"""Who owns a shard, how it is given up, and for how long a fenced worker may still believe in its lease."""

import asyncio
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import (
    NO_TOPIC_ID,
    Change,
    PartitionRecord,
    ShardRecord,
    Tombstone,
    TopicRecord,
    WorkerRecord,
)
from twinlog.control.sharding import shard_of
from twinlog.errors import GiveWay, RetryLater
from twinlog.relay.lease import LEASE_S
from twinlog.service import shards as module
from twinlog.service.shards import Shards, Sightings, _holders, lease_id


def _worker(name: str, beat: int) -> WorkerRecord:
    return WorkerRecord(name, "host", 1, 0, beat)


def _shards(worker: str = "me") -> Shards:
    unused: Any = None
    return Shards(unused, unused, worker=worker)


def test_lease_ends_from_when_its_last_renewal_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker silent for longer than the lease need not be waited for."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    seen = Sightings()
    seen.note([_worker("a", 1)])
    now = 101.0
    assert seen.lease_left_s(_worker("a", 1)) == pytest.approx(LEASE_S - 1)
    now = 110.0
    assert seen.lease_left_s(_worker("a", 1)) == 0


def test_renewal_that_was_not_seen_coming_counts_from_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer record than the one seen may be of this very moment: the whole lease is waited for."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    seen = Sightings()
    seen.note([_worker("a", 1)])
    now = 110.0
    assert seen.lease_left_s(_worker("a", 2)) == LEASE_S
    assert seen.lease_left_s(_worker("never seen", 5)) == LEASE_S
    assert seen.lease_left_s(None) == LEASE_S


def test_released_shards_have_no_holder() -> None:
    """Only an owner that did not give up in order is fenced."""
    image = Image([ShardRecord(0, "a"), ShardRecord(1, "b", released=True), ShardRecord(2, "c")])
    image.apply(ShardRecord(3, "d", unsettled=True))
    assert _holders(image, [0, 1, 2, 3, 4]) == {0: "a", 2: "c"}


def test_claim_writes_itself_down_and_forgets_whom_it_replaced() -> None:
    """A worker without any shard left is removed from the state."""
    image = Image([ShardRecord(0, "a"), ShardRecord(1, "b"), ShardRecord(2, "b")])
    handled = _shards()._judge(image, [0, 1], {0: "a", 1: "b"})
    assert set(handled.records) == {ShardRecord(0, "me"), ShardRecord(1, "me"), Tombstone(("worker", "a"))}
    assert handled.reply == {0, 1}


def test_claim_gives_way_to_one_that_came_in_between() -> None:
    """Another worker has written itself down since we looked: it has to be fenced first."""
    image = Image([ShardRecord(0, "another")])
    with pytest.raises(GiveWay):
        _shards()._judge(image, [0], {0: "a"})


def test_own_shards_are_not_fenced() -> None:
    """A worker that gets a shard back does not lock itself out."""
    image = Image([ShardRecord(0, "me")])
    handled = _shards()._judge(image, [0], {0: "me"})
    assert handled.records == (ShardRecord(0, "me"),)


def test_lease_ids_are_the_workers_own() -> None:
    """One transactional id a worker."""
    assert lease_id("abc") == "twinlog-worker-abc"


def test_shard_given_up_unsettled_is_settled_and_nobody_is_fenced() -> None:
    """Its former owner goes on with its other shards, and keeps its own record."""
    image = Image([ShardRecord(0, "a", unsettled=True), ShardRecord(1, "a"), ShardRecord(2, "b", released=True)])
    handled = _shards()._judge(image, [0, 2], {})
    assert handled.records == (ShardRecord(0, "me"), ShardRecord(2, "me"))
    assert handled.reply == {0}


class _Keeper:
    """Takes what is put, and lets it stand once `go` is set."""

    def __init__(self) -> None:
        self.put_so_far: list[Change] = []
        self.go = asyncio.Event()
        self.go.set()

    async def put(self, *changes: Change) -> None:
        self.put_so_far += changes
        await self.go.wait()


class _Partition:
    """A supervisor that ends in order, or not."""

    def __init__(self, shards: Shards, *, at_rest: bool) -> None:
        self._shards = shards
        self._at_rest = at_rest

    async def release(self, _within_s: float) -> bool:
        assert self in self._shards.supervisors
        return self._at_rest


class _Bench:
    """Shards that own two, with a partition in each, of which the second does not end in order."""

    def __init__(self) -> None:
        self.keeper = _Keeper()
        self.image = Image()
        around: Any = SimpleNamespace(keeper=self.keeper, image=self.image, lease=SimpleNamespace(is_fenced=False))
        state: Any = SimpleNamespace(shards=50)
        self.shards = Shards(state, around, worker="me")
        self.first, self.second = (shard_of("m", "t", partition, 50) for partition in (0, 1))
        self.shards._owned = {self.first: False, self.second: False}
        partitions: Any = {("m", "t", number): _Partition(self.shards, at_rest=number == 0) for number in (0, 1)}
        self.shards._supervisors = partitions

    def said(self) -> Sequence[Change]:
        """What was written down."""
        return self.keeper.put_so_far


async def test_what_did_not_end_in_order_is_given_up_unsettled() -> None:
    """Only the shard that it is in; the other's next owner begins at once, and nobody has to fence this worker."""
    bench = _Bench()
    await bench.shards.taken([bench.first, bench.second])
    assert set(bench.said()) == {
        ShardRecord(bench.first, "me", released=True),
        ShardRecord(bench.second, "me", unsettled=True),
    }
    assert not bench.shards.owned
    assert not bench.shards.supervisors


async def test_nothing_is_claimed_before_the_last_word_of_a_release_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Committed after the claim, it would call a shard free that is owned."""
    monkeypatch.setattr(module, "SAID_WITHIN_S", 0.01)
    bench = _Bench()
    bench.keeper.go.clear()
    await bench.shards.taken([bench.first])
    bench.shards._wanted = {bench.first}
    with pytest.raises(RetryLater, match="not known to stand"):
        await bench.shards._claim_once([bench.first])
    bench.keeper.go.set()
    await asyncio.sleep(0.01)
    await asyncio.wait_for(bench.shards._spoken(), 1)
    assert not bench.shards._saying


async def test_fenced_worker_says_nothing_more() -> None:
    """Its word would not be committed, and its successor knows already."""
    bench = _Bench()
    bench.shards._around.lease.is_fenced = True  # type: ignore[misc]  # a stand-in without a setter
    await bench.shards.taken([bench.first])
    assert not bench.said()


async def test_what_was_given_up_is_claimed_before_what_has_to_be_fenced() -> None:
    """An owner that ended in order is not waited for because another one died."""
    bench = _Bench()
    bench.shards._owned = {}
    bench.shards._wanted = {1, 2, 3, 4}
    for record in (
        ShardRecord(1, "dead"),
        ShardRecord(2, "gone", released=True),
        ShardRecord(3, "gone", unsettled=True),
    ):
        bench.image.apply(record)
    assert bench.shards._next() == [2, 3, 4]
    bench.shards._owned = {2: False, 3: True, 4: False}
    assert bench.shards._next() == [1]
    bench.shards._owned[1] = True
    assert bench.shards._next() == []


def test_partitions_that_rest_behind_a_first_offset_are_known_without_a_supervisor() -> None:
    """Those of the owned shards only; one that mirrors looks after itself, and one that starts at 0 needs nothing."""
    states = [(PartitionState.STOPPED, 9), (PartitionState.STOPPED, -1), (PartitionState.MIRRORING, 9)]
    states += [(PartitionState.FAILED, 9), (PartitionState.STOPPED, 9)]
    records = [PartitionRecord("m", "t", p, state, first_offset=first) for p, (state, first) in enumerate(states)]
    topic = TopicRecord("m", "t", DesiredState.STOPPED, NO_TOPIC_ID, NO_TOPIC_ID, len(records))
    around: Any = SimpleNamespace(image=Image([topic, *records]))
    state: Any = SimpleNamespace(shards=50)
    shards = Shards(state, around, worker="me")
    owned = {shard_of("m", "t", p, 50) for p in range(4)}
    assert shard_of("m", "t", 4, 50) not in owned
    shards._owned.update(dict.fromkeys(owned, False))
    assert [record.partition for record in shards.resting] == [0, 3]
