"""Moving over from another copier that has filled the destination topic, as the page about copies tells it."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.real.faults import until
from tests.real.reo_copies import PARTITIONS, Copy, Scene

from twinlog.testing.kafka import LocalKafka

BEFORE, DURING, AFTER = 30, 20, 20


def copied_by_another(scene: Scene, numbers: int) -> None:
    """What the program before has made of the first records: their values, at offsets of the destination's own."""
    producer = Producer({"bootstrap.servers": scene.destination.bootstrap})
    for number in range(numbers):
        for partition in range(PARTITIONS):
            producer.produce(f"{scene.topic}-twin", value=b"%d:%d" % (partition, number), partition=partition)
    assert producer.flush(20) == 0


def copies_now(copy: Copy) -> bool:
    """Whether it has said that it has begun."""
    return f"copies {PARTITIONS} partitions" in copy.text()


def test_a_cut_over_between_two_records_loses_and_doubles_none(
    source: LocalKafka, destination: LocalKafka, topic: str, tmp_path: Path
) -> None:
    """Refused without a word where to begin; told `latest`, it goes on behind the other; a restart keeps its place."""
    with Scene(source, destination, topic, tmp_path) as scene:
        flow = scene.flow()
        flow.write(BEFORE)
        copied_by_another(scene, BEFORE)

        unsure = scene.begin()
        assert unsure.process is not None
        assert unsure.process.wait(30) == 1
        assert all(word in unsure.text() for word in ("holds records already", "start-from"))

        copy = scene.begin("--start-from latest")
        until(lambda: copies_now(copy), timeout_s=30, what="the copy begins")
        flow.write(DURING)
        scene.counter.read((BEFORE + DURING) * PARTITIONS)
        copy.end()
        flow.write(AFTER)
        # The same command line again, as a container would be started: what came meanwhile is not skipped.
        copy.start()
        assert scene.assert_each_once(flow) == (BEFORE + DURING + AFTER) * PARTITIONS


@pytest.mark.soak
def test_side_by_side_with_another_name_and_destination_nothing_is_shared(
    source: LocalKafka, destination: LocalKafka, topic: str, tmp_path: Path
) -> None:
    """A trial copies all from the beginning into a topic of its own, while the first one goes on untouched."""
    trial = f"{topic}-trial"
    destination.create_topic(f"{trial}-twin", partitions=PARTITIONS)
    with Scene(source, destination, topic, tmp_path) as scene:
        flow = scene.flow()
        flow.write(BEFORE)
        first = scene.begin()
        words = f"--application-name {trial} --destination-topic {trial}-twin"
        second = scene.begin(words)
        flow.write(AFTER)
        assert scene.assert_each_once(flow) > 0
        until(lambda: [row["lag"] for row in second.status()] == [0] * PARTITIONS, timeout_s=30, what="no lag")
        assert [row["position"] for row in second.status()] == [BEFORE + AFTER] * PARTITIONS
        assert (first.alive, second.alive) == (True, True)
