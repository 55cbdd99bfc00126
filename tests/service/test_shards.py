"""Who owns a shard, and for how long a fenced worker may still believe in its lease."""

import time
from typing import Any

import pytest

from twinlog.control.image import Image
from twinlog.control.records import ShardRecord, Tombstone, WorkerRecord
from twinlog.errors import GiveWay
from twinlog.relay.lease import LEASE_S
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
    assert _holders(image, [0, 1, 2, 3]) == {0: "a", 2: "c"}


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
