"""What names and ids tell."""

from uuid import UUID

from twinlog.names import TopicPartition, ids_differ


def test_a_partition_is_written_as_kafka_does() -> None:
    """As in the names of its folders."""
    assert str(TopicPartition("orders", 3)) == "orders-3"


def test_ids_differ_only_where_both_are_known() -> None:
    """A broker before 2.8 has none, and a topic that does not exist yet has none either."""
    none, one, two = UUID(int=0), UUID(int=1), UUID(int=2)
    assert ids_differ(one, two)
    assert not any(ids_differ(*pair) for pair in ((one, one), (one, none), (none, two), (none, none)))
