"""Several workers on one destination share the partitions: whoever joins, leaves or dies disturbs only its own.

How far a partition lags is told in seconds: for how long the source has had something that the destination has not.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.real.faults import FaultyMirror, Ticker, freeze, thaw, until, wait_progress
from tests.real.lags import BEFORE_S, Lags
from tests.real.mirroring import Worker

from twinlog.admin.mirrors import MirrorAdmin
from twinlog.admin.results import DescribeMirrorsResult
from twinlog.config.client import ClientSettings
from twinlog.errors import RetryLater
from twinlog.state.log import StateLog
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.load import Flow

pytestmark = pytest.mark.timed

PARTITIONS = 12
TOPIC = "shared-by-workers"
# Of two workers, each owns half of the partitions, one more or less: see `control/sharding.py`.
SHARE = PARTITIONS // 2 - 1
# What stays must not notice: its lag does not rise by more than this.
UNDISTURBED_S = 1.0
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
# Ends no partition in order: each is cut off, with whatever it has under way.
STUBBORN = """
import sys
from twinlog.config.client import ClientSettings
from twinlog.relay.partition import PartitionRelay
from twinlog.service.worker import run_worker

PartitionRelay.stop = lambda self: None
sys.exit(run_worker(ClientSettings.from_properties({}, bootstrap=sys.argv[1], origin="test"), verbose=False))
"""
# In order: the group's two rounds (heartbeats come every second), the claim, and no settle wait.
HANDED_OVER_S = 6.0
# While all workers are replaced, each partition moving more than once.
UPGRADED_S = 20.0
# Cut off after 4 s, and settled by the next owner.
CUT_OFF_S = 12.0
# The session (6 s), the lease, the settle wait (2 s).
REPLACED_S = 15.0


@dataclass
class Team:
    """Workers that share one topic's partitions, and what the destination's ends did meanwhile."""

    mirror: FaultyMirror
    lags: Lags

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
        # Until what has been caught up counts no more as lag from before.
        time.sleep(2 * BEFORE_S)
        return workers

    def assert_undisturbed(self, partitions: list[int], since: float) -> float:
        """None of these noticed; returns by how much their lag rose at most."""
        assert partitions
        rise_s = max(self.lags.rise_s(p, since=since) for p in partitions)
        assert rise_s < UNDISTURBED_S, f"the lag of a partition that stayed rose by {rise_s:.1f} s"
        return rise_s

    def disturbed_s(self, partitions: list[int], since: float) -> float:
        """By how much the lag of these rose at most."""
        return max((self.lags.rise_s(p, since=since) for p in partitions), default=0.0)


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
            Lags(mirror, TOPIC) as lags,
        ):
            yield Team(mirror, lags)
        assert mirror.assert_twins(TOPIC) > 1000


def test_a_worker_that_joins_takes_its_share_and_disturbs_only_that(team: Team) -> None:
    """A second worker owns its share within 15 s; the lag of the others does not rise by a second."""
    (first,) = team.shared_by(1)
    began = time.monotonic()
    second = team.mirror.start_worker()
    joined_s = until(lambda: len(team.of(second)) >= SHARE, timeout_s=30, what="the second takes its share")
    wait_progress(team.mirror, TOPIC)
    moved, stayed = team.of(second), team.of(first)
    others_s = team.assert_undisturbed(stayed, began)
    pause_s = team.disturbed_s(moved, began)
    print(f"joined within {joined_s:.1f} s; lag of moved partitions rose by {pause_s:.1f} s, others' {others_s:.1f} s")
    assert joined_s < 15.0
    assert pause_s < HANDED_OVER_S


def test_a_worker_that_is_terminated_hands_over_without_a_wait(team: Team) -> None:
    """SIGTERM ends a worker within 10 s, and its partitions go on at once; the others do not notice."""
    stayer, leaver = team.shared_by(2)
    moved, stayed = team.of(leaver), team.of(stayer)
    began = time.monotonic()
    assert leaver.stop(timeout_s=12) == 0
    ended_s = time.monotonic() - began
    wait_progress(team.mirror, TOPIC)
    others_s = team.assert_undisturbed(stayed, began)
    pause_s = team.disturbed_s(moved, began)
    print(f"ended within {ended_s:.1f} s; lag of moved partitions rose by {pause_s:.1f} s, others' {others_s:.1f} s")
    assert ended_s < 10.0
    assert pause_s < HANDED_OVER_S


def test_a_rolling_upgrade_lets_no_partition_stand_still_for_long(team: Team) -> None:
    """Each of two workers is ended and replaced, one after the other, under load."""
    old = team.shared_by(2)
    began = time.monotonic()
    for worker in old:
        assert worker.stop(timeout_s=12) == 0
        team.mirror.start_worker()
        team.shared_by(2)
    pause_s = team.disturbed_s(list(range(PARTITIONS)), began)
    print(f"upgraded within {time.monotonic() - began:.1f} s; no partition's lag rose by more than {pause_s:.1f} s")
    assert not {worker.pid for worker in old} & {worker.pid for worker in team.alive()}
    assert pause_s < UPGRADED_S


def test_what_does_not_end_in_order_costs_no_other_partition_anything(team: Team) -> None:
    """The former owner goes on with what it keeps, though what it gave up may still be under way: nobody fences it."""
    for worker in team.alive():
        assert worker.stop() == 0
    stubborn = team.mirror.start_worker(STUBBORN)
    team.shared_by(1)
    began = time.monotonic()
    second = team.mirror.start_worker()
    until(lambda: len(team.of(second)) >= SHARE, timeout_s=30, what="the second takes its share")
    wait_progress(team.mirror, TOPIC)
    moved, stayed = team.of(second), team.of(stubborn)
    others_s = team.assert_undisturbed(stayed, began)
    pause_s = team.disturbed_s(moved, began)
    print(f"lag of partitions that were cut off rose by {pause_s:.1f} s, others' {others_s:.1f} s")
    assert "is cut off" in stubborn.log_text()
    assert "begins anew" not in stubborn.log_text()
    assert "fencing worker" not in second.log_text()
    assert pause_s < CUT_OFF_S
    began = time.monotonic()
    assert stubborn.stop(timeout_s=12) == 0
    assert time.monotonic() - began < 10.0


def test_a_worker_ends_within_10_s_although_the_destination_does_not_answer(team: Team) -> None:
    """There is nothing it could hand over then; who comes next fences it."""
    (worker,) = team.shared_by(1)
    broker = team.mirror.destination[1]
    broker.pause()
    try:
        began = time.monotonic()
        assert worker.stop(timeout_s=12) == 0
        ended_s = time.monotonic() - began
    finally:
        broker.resume()
    print(f"ended within {ended_s:.1f} s")
    assert ended_s < 10.0


def test_a_worker_that_is_killed_is_replaced_within_15_s(team: Team) -> None:
    """From SIGKILL, most likely in the middle of a commit, to progress on each partition; the others do not notice.

    A transaction that a dead worker leaves open would hold up all who read the state until it times out.
    """
    (stayer,) = team.shared_by(1)
    victim = team.mirror.start_worker(SLOW_COMMITS)
    stayer, victim = team.shared_by(2)
    moved, stayed = team.of(victim), team.of(stayer)
    # It moves since a commit has ended, and the next one lasts almost until the one after.
    time.sleep(0.5)
    began = time.monotonic()
    victim.kill()
    wait_progress(team.mirror, TOPIC)
    others_s = team.assert_undisturbed(stayed, began)
    pause_s = team.disturbed_s(moved, began)
    print(f"replaced within {pause_s:.1f} s; lag of the others rose by {others_s:.1f} s")
    assert pause_s < REPLACED_S


def test_describe_answers_at_once_after_the_only_worker_died_in_a_commit(team: Team) -> None:
    """As far as is decided, with the figures' age; what judges and changes waits until the commit is aborted."""
    for worker in team.alive():
        assert worker.stop() == 0
    for attempt in range(1, 5):
        victim = team.mirror.start_worker(SLOW_COMMITS)
        team.shared_by(1)
        time.sleep(0.2 * attempt)
        victim.kill()
        if asyncio.run(_held_up(team.mirror.destination)):
            break
    else:
        pytest.fail("no worker was killed in the middle of a commit")
    began = time.monotonic()
    told = asyncio.run(_describe(team.mirror.destination, team.mirror.name))
    took_s = time.monotonic() - began
    print(f"answered within {took_s:.1f} s, with figures {told.figures_age_ms} ms old")
    assert took_s < 5.0
    assert len(told.partitions) == PARTITIONS
    assert told.figures_age_ms > 0
    assert told.without_figures == 0


async def _held_up(kafka: LocalKafka) -> bool:
    async with await MirrorAdmin.connect(_settings(kafka)) as admin:
        try:
            await (await StateLog.open(admin._cluster, create=False)).load(timeout_s=1.0)
        except RetryLater:
            return True
        return False


async def _describe(kafka: LocalKafka, mirror: str) -> DescribeMirrorsResult:
    async with await MirrorAdmin.connect(_settings(kafka)) as admin:
        return await admin.describe_mirrors([mirror])


def _settings(kafka: LocalKafka) -> ClientSettings:
    return ClientSettings.from_properties({}, bootstrap=kafka.bootstrap, origin="test")


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
