"""Soak: leaders of the destination die while their followers lag, so that acknowledged batches are lost.

With acks=1 a leader acknowledges what no follower has. Its successor's log then ends earlier than what was
acknowledged, and the mirror has to notice and to send that again, at the same offsets.

| test     | covers                                                                                     | minutes |
|----------|--------------------------------------------------------------------------------------------|---------|
| plain    | data and no blanks; both followers or one paused by SIGSTOP, then the leader is killed      | 8       |
| blanks   | the same with short and long runs of blanks all the time, and with workers killed meanwhile | 8       |

Each time 25 leaders are killed. All of it scales with TWINLOG_SOAK_SCALE.
"""

import random

import pytest
from tests.real.brokers import Losses, Unconfirmed
from tests.real.faults import FaultyMirror, elect_leaders, wait_progress
from tests.soak.soaking import Soak, scaled

from twinlog.testing.kafka import LocalKafka
from twinlog.testing.load import Flow

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2400)]

PARTITIONS = 6
TOPIC = "soaked"


@pytest.mark.parametrize(("kind", "aborted_run"), [("plain", 0), ("blanks", 12_000)])
def test_leaders_die_with_followers_behind(kind: str, aborted_run: int) -> None:
    """Whatever a new leader lacks is sent again; both sides are identical."""
    rng = random.Random(kind)
    with (
        Soak(f"leaders die with followers behind, {kind}") as soak,
        LocalKafka() as source,
        LocalKafka(3) as destination,
        FaultyMirror(source, destination, workers=2) as mirror,
    ):
        mirror.create(TOPIC, partitions=PARTITIONS)
        mirror.start(TOPIC)
        mirror.wait_mirroring(TOPIC, PARTITIONS)
        losses = Losses()
        flow = Flow(
            source, TOPIC, seed=7, records_per_second=1500, transactions=bool(aborted_run), aborted_run=aborted_run
        )
        with flow, Unconfirmed(mirror, TOPIC) as unconfirmed:
            for _ in range(scaled(25, least=3)):
                wait_progress(mirror, TOPIC)
                losses.lose_leader(mirror, TOPIC, rng)
                if aborted_run and rng.random() < 0.33:
                    rng.choice([w for w in mirror.workers if w.alive]).kill()
                    mirror.start_worker()
                    soak.note("workers killed")
                wait_progress(mirror, TOPIC)
                elect_leaders(destination)
        soak.note("leaders killed", losses.kills)
        soak.note("of them with offsets that no follower had", losses.with_loss)
        soak.note("such offsets", losses.offsets)
        soak.note("offsets at most beyond the high watermark", unconfirmed.most)
        assert soak.assert_twins(mirror, TOPIC) == flow.acknowledged
