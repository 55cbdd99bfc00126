"""Copies into a topic one partition of which has too few replicas in sync: what is held, and what is said of it."""

from pathlib import Path

import pytest
from tests.real.faults import until
from tests.real.reo_copies import Copy, Scene, ask, wait_for_error

from twinlog.testing.kafka import LocalKafka

NAMED_WITHIN_S = 30.0
# Partition 2 alone lacks a replica when broker 3 is away; every replica is needed.
TWIN_ON = ([1, 2], [2, 1], [1, 3], [2, 1])


def cause(scene: Scene) -> str:
    """What has to be said."""
    return (
        f"{scene.topic}-twin-2 has 1 of 2 replicas in sync (replicas on brokers 1, 3; in sync: 1), and "
        f"min.insync.replicas is 2. Bring broker 3 back"
    )


@pytest.mark.soak
def test_only_the_partition_without_its_replicas_waits_if_that_is_known_before(
    source: LocalKafka, destination3: LocalKafka, topic: str, tmp_path: Path
) -> None:
    """It is left out of the transaction, which could not end otherwise; log and status say why."""
    with Scene(source, destination3, topic, tmp_path, twin_on=TWIN_ON) as scene:
        flow = scene.flow()
        flow.write(50)
        before = Copy(source, destination3, topic, tmp_path / "none.log").status()
        assert [(row["position"], row["begins"], row["lag"], row["error"]) for row in before] == [(None, 0, 50, "")] * 4
        try:
            destination3[3].stop()
            copy = scene.begin()
            scene.counter.read(150)
            assert [len(scene.counter.seen[number]) for number in range(4)] == [50, 50, 0, 50], copy.text()
            assert list(wait_for_error(copy, cause(scene))) == [2]
            assert f"{topic}-2: {cause(scene)}" in copy.text()
            flow.write(10)
            scene.counter.read(180)
            assert [len(scene.counter.seen[number]) for number in range(4)] == [60, 60, 0, 60], copy.text()
        finally:
            destination3[3].start()
            destination3.wait_ready()
        assert scene.assert_each_once(flow) == 240, copy.text()
        until(lambda: copy.errors() == {}, timeout_s=20, what="nothing is told to stand still")


def test_the_partition_that_keeps_a_transaction_from_ending_is_named(
    source: LocalKafka, destination3: LocalKafka, topic: str, tmp_path: Path
) -> None:
    """In log, status, readiness and metrics within 30 s; when the broker is back, all arrives.

    No transaction that the partition is part of can end, not even by being aborted: its marker is refused, too.
    """
    with Scene(source, destination3, topic, tmp_path, twin_on=TWIN_ON) as scene:
        with scene.flow() as flow:
            # Long transactions: whenever the broker goes, one with all partitions in it is open.
            copy = scene.begin("--http 127.0.0.1:0 --set commit-interval-ms=2000")
            scene.counter.read(200, quiet_s=0)
            try:
                destination3[3].stop()
                assert_told(scene, copy)
            finally:
                destination3[3].start()
                destination3.wait_ready()
        scene.assert_each_once(flow)
        until(lambda: ask(copy, "/readyz") == (200, "ready\n"), timeout_s=20, what="it is ready again")


@pytest.mark.soak
def test_each_share_has_a_transaction_of_its_own(
    source: LocalKafka, destination3: LocalKafka, topic: str, tmp_path: Path
) -> None:
    """One process with a share for each partition: the other three go on while one is held."""
    with Scene(source, destination3, topic, tmp_path, twin_on=TWIN_ON) as scene:
        with scene.flow() as flow:
            copy = scene.begin("--shares 4 --http 127.0.0.1:0 --set commit-interval-ms=2000")
            scene.counter.read(400, quiet_s=0)
            try:
                destination3[3].stop()
                until(lambda: "cannot end" in copy.text(), timeout_s=NAMED_WITHIN_S, what="one share is held")
                until(lambda: is_ahead(scene), timeout_s=40, what="the other three have gone on")
                assert 'twinlog_reo_held{stage="direct"} 1.0' in ask(copy, "/metrics")[1]
                assert list(wait_for_error(copy, "cannot end", cause(scene))) == [2]
            finally:
                destination3[3].start()
                destination3.wait_ready()
        scene.assert_each_once(flow)


def is_ahead(scene: Scene) -> bool:
    """Whether two seconds' worth of records more have come in each partition but 2."""
    scene.counter.read(scene.counter.count + 50, within_s=1.0, quiet_s=0)
    seen = [len(scene.counter.seen[number]) for number in range(4)]
    return min(*seen[:2], seen[3]) > seen[2] + 200


def assert_told(scene: Scene, copy: Copy) -> None:
    """Everywhere an operator may look, the cause is named."""
    told = cause(scene)
    until(
        lambda: "cannot end" in copy.text() and told in copy.text(), timeout_s=NAMED_WITHIN_S, what="it is in the log"
    )
    code, ready = ask(copy, "/readyz")
    assert (code, "cannot end" in ready, told in ready) == (503, True, True), ready
    assert list(wait_for_error(copy, "cannot end", told)) == [0, 1, 2, 3]
    text = ask(copy, "/metrics")[1]
    assert 'twinlog_reo_held{stage="direct"} 1.0' in text
    assert f'twinlog_reo_too_few_replicas{{partition="2",stage="direct",topic="{scene.topic}-twin"}} 1.0' in text
