"""Each rule of the append protocol, broken on purpose, is caught: the simulation would see if the real code broke it.

For each there is a kind of world in which it matters; how many of those it takes is bounded.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from tests.sim import broken
from tests.sim.settings import Settings
from tests.sim.world import Outcome, run_world

Worlds = Callable[[int], Settings]


def busy(seed: int, **changes: object) -> Settings:
    """A world with many blanks, some of them alone, and a destination of three brokers."""
    usual = replace(
        Settings.of(seed),
        workers=2,
        partitions=1,
        destination_nodes=3,
        transactions=0.6,
        long_runs=False,
        compacted=False,
        old_records=False,
        expiration_ms=86_400_000,
        load_every_s=0.1,
        fault_every_s=0.5,
        delay_s=0.001,
        lasts_s=12.0,
    )
    return replace(usual, **changes)


def struggling(seed: int) -> Settings:
    """Workers that cannot renew their leases, and whose shards are given to others meanwhile."""
    return busy(seed, faults=("isolate worker",), load_every_s=2.0, lasts_s=40.0, delay_s=0.04, transactions=0.8)


def cut_off(seed: int) -> Settings:
    """Connections break all the time."""
    return busy(seed, faults=("cut at send", "cut one"))


def slow_to_hear(seed: int) -> Settings:
    """Connections break, and what was under way is carried out late."""
    return busy(seed, workers=1, delay_s=0.04, fault_every_s=0.3, lasts_s=20.0, faults=("cut at send",))


def old(seed: int) -> Settings:
    """Bursts of records of last month, a broker that has forgotten their producer, and a leader that comes and goes."""
    return busy(
        seed,
        workers=1,
        old_records=True,
        expiration_ms=20_000,
        transactions=0.0,
        load_every_s=1.5,
        fault_every_s=0.3,
        lasts_s=60.0,
        delay_s=0.04,
        faults=("flap at send",),
    )


def leaders_lost(seed: int) -> Settings:
    """Leaders die with followers behind, and lead again soon after."""
    return busy(
        seed,
        workers=1,
        load_every_s=0.03,
        lasts_s=20.0,
        faults=("lose destination leader", "lose destination leader", "move destination leader"),
    )


def leaders_coming_and_going(seed: int) -> Settings:
    """Leaders that lose their ends in a moment in which others lead, while requests are long under way."""
    return busy(seed, workers=1, lasts_s=60.0, delay_s=0.08, fault_every_s=0.3, faults=("flap at send",))


@dataclass(frozen=True, slots=True)
class Broken:
    """A broken rule, the worlds in which that matters, from which seed on, and how many of them it may take."""

    rule: broken.Break
    worlds: Worlds
    first: int = 0
    within: int = 15


BROKEN = [
    Broken(broken.no_lease_check, struggling),
    Broken(broken.markers_resent_blindly, cut_off),
    Broken(broken.no_tail_check, Settings.foreign),
    Broken(broken.no_barrier, old),
    Broken(broken.no_settle_wait, slow_to_hear, first=2),
    Broken(broken.confirmed_by_acknowledgement, leaders_lost),
    Broken(broken.markers_before_the_high_watermark, leaders_coming_and_going, first=19, within=40),
]


def caught(outcome: Outcome) -> bool:
    """Whether anything happened that the protocol says cannot happen, or what can happen stayed unnoticed."""
    if outcome.settings.foreign_at_s is None:
        return not (outcome.identical or outcome.residual)
    silent = {anomaly.where for anomaly in outcome.anomalies} - outcome.failed.keys()
    return bool(silent or outcome.wrong)


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.rule.__name__)
def test_a_broken_rule_is_caught(case: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within so many worlds one goes wrong, and the same world does not when the rule is kept."""
    found = None
    with monkeypatch.context() as patch:
        case.rule(patch)
        for seed in range(case.first, case.first + case.within):
            if caught(run_world(case.worlds(seed))):
                found = seed
                break
    assert found is not None, f"{case.rule.__name__}: not caught in {case.within} worlds"
    print(f"{case.rule.__name__}: caught by seed {found}")
    assert not caught(run_world(case.worlds(found)))
