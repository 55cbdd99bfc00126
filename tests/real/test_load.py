"""The load writes what it says it writes."""

import random
import time

import pytest

from twinlog.testing.checker import assert_identical
from twinlog.testing.data import EVERYTHING_ALLOWED, create_topic
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.load import Flow, Load
from twinlog.testing.reader import Bounds, TopicReader


def visible(kafka: LocalKafka, topic: str) -> int:
    """Records that a read_committed reader sees."""
    return assert_identical(kafka, kafka, topic).source_records


def bounds(kafka: LocalKafka, topic: str) -> Bounds:
    """Bounds of partition 0, behind the markers of what has ended."""
    reader = TopicReader(kafka, topic)
    try:
        return reader.settled_bounds()[0]
    finally:
        reader.close()


@pytest.mark.parametrize("config", [{}, EVERYTHING_ALLOWED, {"cleanup.policy": "compact"}])
def test_every_kind_is_accepted_and_counted(source: LocalKafka, topic: str, config: dict[str, str]) -> None:
    """All kinds of data are taken by default, permissive and compacted topics; what is counted is what is visible."""
    create_topic(source, topic, partitions=3, config=config)
    load = Load(source, topic, random.Random(1))
    load.everything(100)
    load.close()
    assert load.acknowledged > 500
    assert visible(source, topic) == load.acknowledged


def test_an_empty_transaction_leaves_nothing_and_a_refused_one_a_marker(source: LocalKafka, topic: str) -> None:
    """Without records no partition takes part; with a refused one there is an abort marker and no data."""
    create_topic(source, topic)
    load = Load(source, topic, random.Random(1))
    load.transaction(0)
    assert bounds(source, topic) == Bounds(0, 0, 0)
    load.markers_only()
    assert bounds(source, topic) == Bounds(0, 1, 1)
    assert visible(source, topic) == 0
    load.close()


def test_an_open_transaction_holds_the_stable_offset_back(source: LocalKafka, topic: str) -> None:
    """What comes behind an open transaction is not stable until that is decided."""
    create_topic(source, topic)
    load = Load(source, topic, random.Random(1))
    with load.open_transaction() as transaction:
        transaction.send([load.make.record()])
        load.plain(5)
        assert bounds(source, topic) == Bounds(0, 6, 0)
        transaction.commit()
    assert bounds(source, topic) == Bounds(0, 7, 7)
    assert visible(source, topic) == load.acknowledged == 6
    load.close()


def test_a_flow_counts_what_it_wrote(source: LocalKafka, topic: str) -> None:
    """A background load ends when told, leaves no transaction open, and counts exactly what is visible."""
    create_topic(source, topic, partitions=3)
    with Flow(source, topic, seed=3, records_per_second=5000) as flow:
        time.sleep(3)
    assert flow.acknowledged > 100
    assert visible(source, topic) == flow.acknowledged


def test_a_million_records_are_compared_in_half_a_minute(source: LocalKafka, topic: str) -> None:
    """The checker reads a million records on each side in less than 30 s, so that big tests can afford it."""
    create_topic(source, topic, partitions=3)
    load = Load(source, topic, random.Random(1))
    load.bulk(1_000_000)
    load.close()
    began = time.monotonic()
    assert visible(source, topic) == 1_000_000
    assert time.monotonic() - began < 30
