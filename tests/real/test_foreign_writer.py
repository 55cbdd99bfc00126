"""Somebody else writes to a mirror topic: the partition is FAILED with both offsets, and no more is written to it."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from tests.real.faults import FaultyMirror

from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.testing.checker import Anomaly, compare
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.load import Flow

PARTITIONS = 3
# The last one, so that an anomaly in any other would be among the first that the checker shows.
HIT = PARTITIONS - 1
# One look at an idle partition a second, the settle wait of 2 s, and the tail check.
IDLE_CHECK_S = 10.0


@pytest.fixture(params=["destination"])
def mirror(source: LocalKafka, request: pytest.FixtureRequest, topic: str) -> Iterator[FaultyMirror]:
    """A running mirror of an empty topic with three partitions, into the destination that a test names."""
    with FaultyMirror(source, request.getfixturevalue(request.param)) as mirror:
        mirror.create(topic, partitions=PARTITIONS)
        mirror.start(topic)
        mirror.wait_mirroring(topic, PARTITIONS)
        yield mirror


def write_foreign(cluster: LocalKafka, topic: str, *, transactional_id: str = "") -> int:
    """One record of somebody else's in the partition that is hit; returns its offset."""
    offsets: list[int] = []
    settings: dict[str, str | int | float | bool] = {"bootstrap.servers": cluster.bootstrap}
    if transactional_id:
        settings["transactional.id"] = transactional_id
    producer = Producer(settings)
    if transactional_id:
        producer.init_transactions(20)
        producer.begin_transaction()
    producer.produce(topic, b"foreign", partition=HIT, on_delivery=lambda _e, m: offsets.append(m.offset() or 0))
    assert producer.flush(20) == 0
    if transactional_id:
        producer.abort_transaction(20)
    return offsets[0]


def assert_only_hit_differs(mirror: FaultyMirror, topic: str) -> None:
    """Every other partition is identical, up to its end."""
    report = compare(mirror.source, mirror.destination, topic)
    assert report.examples
    assert {example.partition for example in report.examples} == {HIT}, str(report)


def assert_others_go_on(mirror: FaultyMirror, topic: str) -> None:
    """The hit partition's end stands still while all others move."""
    before = mirror.ends(topic)
    time.sleep(3)
    mirror.wait_for(
        lambda: all(end > before[p] for p, end in mirror.ends(topic).items() if p != HIT),
        lambda: f"the others move: {before} became {mirror.ends(topic)}",
        30,
    )
    assert mirror.ends(topic)[HIT] == before[HIT]
    others = {p: state for p, state in mirror.states(topic).items() if p != HIT}
    assert set(others.values()) == {PartitionState.MIRRORING}


def level_but_hit(mirror: FaultyMirror, topic: str) -> None:
    """Wait until all but the hit partition have caught up."""
    wanted = mirror.ends(topic, at_source=True)
    mirror.wait_for(
        lambda: all(mirror.ends(topic)[p] == end for p, end in wanted.items() if p != HIT),
        lambda: f"wanted {wanted}, reached {mirror.ends(topic)}",
        60,
    )


@pytest.mark.parametrize("mirror", ["destination", "destination3"], indirect=True)
def test_a_record_written_while_data_flows(mirror: FaultyMirror, topic: str) -> None:
    """The next append's acknowledgement shows it: FAILED with both offsets; the others go on and are identical."""
    with Flow(mirror.source, topic, seed=3, records_per_second=500):
        mirror.wait_for(lambda: min(mirror.ends(topic).values()) > 300, lambda: "data flows", 60)
        foreign = write_foreign(mirror.destination, topic)
        error = mirror.wait_failed(topic, HIT, timeout_s=IDLE_CHECK_S)
        end = mirror.ends(topic)[HIT]
        assert_others_go_on(mirror, topic)
    level_but_hit(mirror, topic)
    assert mirror.ends(topic)[HIT] == end
    # Our batch or marker for the foreign record's offset was appended behind it, and at most five were under way.
    assert str(foreign) in error, error
    assert str(foreign + 1) in error or "differs" in error, error
    record = mirror.partition(topic, HIT)
    assert record is not None
    assert record.retry_attempt == -1
    assert_only_hit_differs(mirror, topic)


@pytest.mark.parametrize("kind", ["record", "aborted transaction"])
def test_a_record_written_while_nothing_flows(mirror: FaultyMirror, topic: str, kind: str) -> None:
    """The next look at the idle partition shows it, be the record visible or not, and names both offsets."""
    with Flow(mirror.source, topic, seed=5, records_per_second=500):
        mirror.wait_for(lambda: min(mirror.ends(topic).values()) > 100, lambda: "data flows", 60)
    mirror.wait_level(topic)
    began = time.monotonic()
    foreign = write_foreign(mirror.destination, topic, transactional_id=topic if kind != "record" else "")
    error = mirror.wait_failed(topic, HIT, timeout_s=IDLE_CHECK_S)
    print(f"FAILED after {time.monotonic() - began:.1f} s: {error}")
    assert str(foreign) in error, error
    assert str(mirror.ends(topic)[HIT]) in error, error
    with Flow(mirror.source, topic, seed=6, records_per_second=500):
        assert_others_go_on(mirror, topic)
    level_but_hit(mirror, topic)
    assert_only_hit_differs(mirror, topic)


def test_a_record_written_while_no_worker_runs(mirror: FaultyMirror, topic: str) -> None:
    """The next worker's tail check finds it before anything is written; stop works from FAILED."""
    with Flow(mirror.source, topic, seed=7, records_per_second=500):
        mirror.wait_for(lambda: min(mirror.ends(topic).values()) > 100, lambda: "data flows", 60)
        mirror.stop_workers()
        foreign = write_foreign(mirror.destination, topic)
        end = mirror.ends(topic)[HIT]
        time.sleep(1)
        mirror.start_worker()
        error = mirror.wait_failed(topic, HIT, timeout_s=30)
        assert str(foreign) in error, error
        assert mirror.ends(topic)[HIT] == end == foreign + 1
        assert_others_go_on(mirror, topic)
    level_but_hit(mirror, topic)
    report = compare(mirror.source, mirror.destination, topic)
    assert report.counts.get(Anomaly.EXTRA, 0) + report.counts.get(Anomaly.CHANGED, 0) == 1, str(report)
    mirror.desire(topic, DesiredState.STOPPED)
    for partition in range(PARTITIONS):
        mirror.wait_state(topic, PartitionState.STOPPED, partition)
