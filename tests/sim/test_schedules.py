"""Thousands of worlds: real workers between simulated clusters, while processes, brokers and connections fail.

Each seed is one world (`settings.Settings`). In each, every append at the destination is held against the source in the
moment in which it is made, and at the end both logs must agree. A failure prints its seed and what happened;
`TWINLOG_SIM_SEED=N` runs that world alone, `TWINLOG_SIM_SEEDS=FIRST:BEHIND` a range of them.
"""

import os
import re

import pytest
from tests.sim.settings import Settings
from tests.sim.world import Outcome, run_world

from twinlog.names import TopicPartition
from twinlog.relay.markers import RUN_PER_REQUEST

SEEDS = range(40)
SOAK_FROM, SOAK_BLOCK, SOAK_BLOCKS = 1_000, 250, 12
FOREIGN_SEEDS = range(8)


def chosen(usual: range) -> range:
    """The seeds to run: the usual ones, or what the environment asks for."""
    if "TWINLOG_SIM_SEED" in os.environ:
        seed = int(os.environ["TWINLOG_SIM_SEED"])
        return range(seed, seed + 1)
    if "TWINLOG_SIM_SEEDS" in os.environ:
        first, behind = os.environ["TWINLOG_SIM_SEEDS"].split(":")
        return range(int(first), int(behind))
    return usual


@pytest.mark.parametrize("seed", chosen(SEEDS))
def test_a_world_ends_with_twins(seed: int) -> None:
    """Whatever happens on the way, nothing is ever wrong; what cannot be excluded is noticed, never silent."""
    outcome = run_world(Settings.of(seed))
    assert outcome.identical or outcome.residual, str(outcome)
    assert outcome.appends, f"seed {seed} mirrors nothing"


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("block", range(SOAK_BLOCKS))
def test_thousands_of_worlds_end_with_twins(block: int) -> None:
    """The same for a few thousand seeds; most must end as twins, without a partition failing."""
    first = SOAK_FROM + block * SOAK_BLOCK
    residual = 0
    for seed in chosen(range(first, first + SOAK_BLOCK)):
        outcome = run_world(Settings.of(seed))
        assert outcome.identical or outcome.residual, str(outcome)
        residual += outcome.residual
    assert residual <= SOAK_BLOCK // 50


@pytest.mark.parametrize("seed", FOREIGN_SEEDS)
def test_a_foreign_writer_fails_its_partition_and_no_other(seed: int) -> None:
    """FAILED, with the place named; at most what was in flight follows it, and the other partition goes on."""
    outcome = run_world(Settings.foreign(seed))
    struck = TopicPartition("twin", 0)
    assert list(outcome.failed) == [struck], str(outcome)
    assert {anomaly.where for anomaly in outcome.anomalies} <= {struck}, str(outcome)
    named = [int(number) for number in re.findall(r"\b\d+\b", outcome.failed[struck])]
    # A run of blanks that lands behind it is looked at as a whole: then its end is named, and where that should be.
    assert any(0 <= offset - outcome.foreign_offset <= RUN_PER_REQUEST for offset in named), str(outcome)
    assert outcome.behind_foreign <= 5, str(outcome)
    assert outcome.caught_up, str(outcome)
    assert not outcome.wrong, str(outcome)


def test_a_seed_is_one_world() -> None:
    """The same seed runs the same way, step by step; another one does not."""
    digests = [run_world(Settings.of(seed)).digest for seed in (7, 7, 8)]
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]


def test_an_outcome_tells_its_seed() -> None:
    """Whoever reads a failure can repeat it."""
    outcome = run_world(Settings.of(3))
    assert isinstance(outcome, Outcome)
    assert str(outcome).startswith("seed 3: ")
