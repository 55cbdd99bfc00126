"""Several workers on one destination share the partitions: whoever joins, leaves or dies disturbs only its own.

How long a partition stood still is told by its end at the destination, sampled ten times a second while every
partition is written to as often.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.real import mirroring
from tests.real.faults import Ends, FaultyMirror, Ticker, freeze, thaw, until, wait_progress
from tests.real.mirroring import Worker

from twinlog.testing.kafka import LocalKafka
from twinlog.testing.load import Flow

PARTITIONS = 12
TOPIC = "shared-by-workers"
# What stays must not notice: its samples and its records come every 0.1 s, and the brokers share the machine.
UNDISTURBED_S = 1.5
# Almost always inside a transaction: each waits before it is ended.
SLOW_COMMITS = """
import asyncio, sys
from twinlog.config.client import ClientSettings
from twinlog.service.worker import run_worker
from twinlog.state.writer import StateWriter

at_once = StateWriter._end

async def slowly(self, *args):
    if self.transactional_id.startswith("twinlog-worker-"):
        await asyncio.sleep(0.8)
    await at_once(self, *args)

StateWriter._end = slowly
sys.exit(run_worker(ClientSettings.from_properties({}, bootstrap=sys.argv[1], origin="test"), verbose=False))
"""
# In order: the group's two rounds (heartbeats come every second), the claim, and no settle wait.
HANDED_OVER_S = 6.0
# The session (6 s), the lease, the settle wait (2 s).
REPLACED_S = 15.0


@dataclass
class Team:
    """Workers that share one topic's partitions, and what the destination's ends did meanwhile."""

    mirror: FaultyMirror
    ends: Ends

    def of(self, worker: Worker) -> list[int]:
        """The partitions that a worker owns."""
        pids = self.mirror.pids()
        return [p for p, owner in self.mirror.owners(TOPIC, PARTITIONS).items() if pids.get(owner) == worker.pid]

    def alive(self) -> list[Worker]:
        """The workers that run."""
        return [worker for worker in self.mirror.workers if worker.alive]

    def shared_by(self, count: int) -> list[Worker]:
        """Bring the team to `count` workers that all own something, everything moving, and return them."""
        while len(self.alive()) > count:
            assert self.alive()[-1].stop() == 0
        while len(self.alive()) < count:
            self.mirror.start_worker()
        workers = self.alive()
        until(
            lambda: all(self.of(w) for w in workers) and sum(len(self.of(w)) for w in workers) == PARTITIONS,
            timeout_s=60,
            what=f"{count} workers share all partitions",
        )
        wait_progress(self.mirror, TOPIC)
        return workers

    def assert_undisturbed(self, partitions: list[int], since: float) -> float:
        """None of these stood still; returns the longest pause."""
        assert partitions
        longest = max(self.ends.longest_pause_s(p, since=since) for p in partitions)
        assert longest < UNDISTURBED_S, f"a partition that stayed stood still for {longest:.1f} s"
        return longest


@pytest.fixture(scope="module")
def team(source: LocalKafka, destination: LocalKafka) -> Iterator[Team]:
    """A mirrored topic that is written to all the time; at the end both sides are compared."""
    with FaultyMirror(source, destination) as mirror:
        mirror.create(TOPIC, partitions=PARTITIONS)
        mirror.start(TOPIC)
        mirror.wait_mirroring(TOPIC, PARTITIONS)
        with (
            Flow(source, TOPIC, seed=4, records_per_second=300),
            Ticker(source, TOPIC, PARTITIONS),
            Ends(mirror, TOPIC) as ends,
        ):
            yield Team(mirror, ends)
        assert mirror.assert_twins(TOPIC) > 1000


def test_a_worker_that_joins_takes_its_share_and_disturbs_only_that(team: Team) -> None:
    """A second worker owns its share within 15 s; the others do not stand still."""
    (first,) = team.shared_by(1)
    began = time.monotonic()
    second = team.mirror.start_worker()
    share = team.mirror.shards_of(first) // 3
    joined_s = until(lambda: team.mirror.shards_of(second) >= share, timeout_s=30, what="the second takes its share")
    wait_progress(team.mirror, TOPIC)
    moved, stayed = team.of(second), team.of(first)
    pause_s = max((team.ends.longest_pause_s(p, since=began) for p in moved), default=0.0)
    others_s = team.assert_undisturbed(stayed, began) if stayed else 0.0
    print(f"joined within {joined_s:.1f} s; moved partitions stood still for {pause_s:.1f} s, others {others_s:.1f} s")
    assert joined_s < 15.0
    assert pause_s < HANDED_OVER_S


def test_a_worker_that_is_terminated_hands_over_without_a_wait(team: Team) -> None:
    """SIGTERM ends a worker within 10 s, and its partitions go on at once; the others do not stand still."""
    stayer, leaver = team.shared_by(2)
    moved, stayed = team.of(leaver), team.of(stayer)
    began = time.monotonic()
    assert leaver.stop(timeout_s=12) == 0
    ended_s = time.monotonic() - began
    wait_progress(team.mirror, TOPIC)
    pause_s = max(team.ends.longest_pause_s(p, since=began) for p in moved)
    others_s = team.assert_undisturbed(stayed, began)
    print(f"ended within {ended_s:.1f} s; moved partitions stood still for {pause_s:.1f} s, others {others_s:.1f} s")
    assert ended_s < 10.0
    assert pause_s < HANDED_OVER_S


def test_a_worker_that_is_killed_is_replaced_within_15_s(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """From SIGKILL, most likely in the middle of a commit, to progress on each partition; the others do not notice.

    A transaction that a dead worker leaves open would hold up all who read the state until it times out.
    """
    (stayer,) = team.shared_by(1)
    monkeypatch.setattr(mirroring, "WORKER", SLOW_COMMITS)
    team.mirror.start_worker()
    monkeypatch.undo()
    stayer, victim = team.shared_by(2)
    moved, stayed = team.of(victim), team.of(stayer)
    began = time.monotonic()
    victim.kill()
    wait_progress(team.mirror, TOPIC)
    pause_s = max(team.ends.longest_pause_s(p, since=began) for p in moved)
    others_s = team.assert_undisturbed(stayed, began)
    print(f"replaced within {pause_s:.1f} s; others stood still for {others_s:.1f} s")
    assert pause_s < REPLACED_S


def test_a_worker_frozen_for_longer_than_its_lease_gives_way(team: Team) -> None:
    """SIGSTOP until the other has taken over, then SIGCONT: it writes nothing more, and joins again."""
    stayer, frozen = team.shared_by(2)
    moved = team.of(frozen)
    before = set(team.mirror.pids())
    freeze(frozen)
    until(lambda: set(team.of(stayer)) >= set(moved), timeout_s=30, what="the other takes over")
    wait_progress(team.mirror, TOPIC)
    thaw(frozen)
    until(lambda: bool(team.of(frozen)), timeout_s=40, what="the thawed worker owns something again")
    wait_progress(team.mirror, TOPIC)
    assert set(team.mirror.pids()) - before, "it came back as the one that was fenced"
    assert "begins anew" in frozen.log_text()
