"""What is believed of a cluster after each thing that it says."""

from uuid import UUID, uuid4

import pytest
from kafka.protocol.metadata import MetadataResponse

from twinlog.errors import TwinlogError
from twinlog.names import TopicPartition
from twinlog.wire.metadata import NO_ID, STALE_ANSWERS, Broker, Leader, Metadata

TOPIC = MetadataResponse.MetadataResponseTopic
PARTITION = TOPIC.MetadataResponsePartition
BROKER = MetadataResponse.MetadataResponseBroker
ZERO = TopicPartition("t", 0)
ONE_ID = uuid4()


def told(
    *, leader: int = 1, epoch: int = 0, topic_id: UUID = ONE_ID, error: int = 0, cluster: str | None = "c"
) -> MetadataResponse:
    """A response about topic t with one partition."""
    partition = PARTITION(
        partition_index=0, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2], isr_nodes=[1], version=12
    )
    topic = TOPIC(
        name="t", topic_id=topic_id, error_code=error, partitions=[partition] if not error else [], version=12
    )
    return MetadataResponse(
        brokers=[BROKER(node_id=1, host="a", port=1, version=12), BROKER(node_id=2, host="b", port=2, version=12)],
        cluster_id=cluster,
        controller_id=2,
        topics=[topic],
        version=12,
    )


def test_a_response_is_taken_in() -> None:
    """Brokers, controller, id and leaders are known after the first response."""
    metadata = Metadata()
    found = metadata.absorb(told(epoch=3), ["t"])
    assert metadata.brokers == {1: Broker(1, "a", 1), 2: Broker(2, "b", 2)}
    assert (metadata.cluster_id, metadata.controller, metadata.topic_id("t")) == ("c", 2, ONE_ID)
    assert metadata.leader(ZERO) == Leader(1, 3)
    assert (found["t"].partitions[0].replicas, found["t"].partitions[0].isr) == ((1, 2), (1,))


def test_a_broker_without_topic_ids_and_leader_epochs() -> None:
    """What its answers do not have is zero and -1; a later answer that has an id begins anew."""
    answer = MetadataResponse.decode(told().encode(version=5), version=5)
    metadata = Metadata()
    info = metadata.absorb(answer, ["t"])["t"]
    assert (info.id, metadata.topic_id("t"), metadata.leader(ZERO)) == (NO_ID, NO_ID, Leader(1, -1))
    metadata.absorb(told(epoch=3), ["t"])
    assert (metadata.topic_id("t"), metadata.leader(ZERO)) == (ONE_ID, Leader(1, 3))


def test_a_lower_epoch_changes_nothing() -> None:
    """A broker that lags behind does not bring back the leader of an older epoch; the next epoch counts."""
    metadata = Metadata()
    metadata.absorb(told(leader=2, epoch=5), ["t"])
    found = metadata.absorb(told(leader=1, epoch=4), ["t"])
    assert metadata.leader(ZERO) == Leader(2, 5)
    assert found["t"].partitions[0].leader == 2
    metadata.absorb(told(leader=1, epoch=6), ["t"])
    assert metadata.leader(ZERO) == Leader(1, 6)


def test_a_lower_epoch_that_stays_is_believed_in_the_end() -> None:
    """A cluster restored from a backup keeps its ids and has lower epochs for good; a broker that lags has not."""
    metadata = Metadata()
    metadata.absorb(told(leader=2, epoch=5), ["t"])
    for _ in range(STALE_ANSWERS - 1):
        metadata.absorb(told(leader=1, epoch=3), ["t"])
    metadata.absorb(told(leader=2, epoch=5), ["t"])
    for _ in range(STALE_ANSWERS - 1):
        metadata.absorb(told(leader=1, epoch=3), ["t"])
        assert metadata.leader(ZERO) == Leader(2, 5)
    metadata.absorb(told(leader=1, epoch=3), ["t"])
    assert metadata.leader(ZERO) == Leader(1, 3)


@pytest.mark.parametrize("topic_id", [uuid4(), NO_ID])
def test_another_topic_of_the_same_name_begins_anew(topic_id: UUID) -> None:
    """A topic with another id, or where there are no ids, is taken as told, whatever its epoch."""
    metadata = Metadata()
    metadata.absorb(told(leader=2, epoch=5, topic_id=topic_id if topic_id == NO_ID else ONE_ID), ["t"])
    metadata.absorb(told(leader=1, epoch=0, topic_id=topic_id), ["t"])
    assert metadata.leader(ZERO) == Leader(1, 0)


def test_the_same_answer_again_is_taken_in_like_another() -> None:
    """Equal answers come as one object; what was learnt between them still counts by its epoch."""
    metadata, answer = Metadata(), told(leader=2, epoch=5)
    first = metadata.absorb(answer, ["t"])["t"]
    assert metadata.absorb(answer, ["t"])["t"] is first
    metadata.note_leader(ZERO, Leader(1, 6))
    for _ in range(STALE_ANSWERS - 1):
        metadata.absorb(answer, ["t"])
        assert metadata.leader(ZERO) == Leader(1, 6)
    metadata.absorb(answer, ["t"])
    assert metadata.leader(ZERO) == Leader(2, 5)


def test_a_partition_without_leader_has_none() -> None:
    """Leader -1 means none, and so does an unknown topic or partition."""
    metadata = Metadata()
    metadata.absorb(told(leader=-1, epoch=7), ["t"])
    assert metadata.leader(ZERO) is None
    assert metadata.leader(TopicPartition("t", 1)) is None
    assert metadata.leader(TopicPartition("u", 0)) is None


def test_a_topic_that_is_gone_is_dropped() -> None:
    """An error for a topic, and its absence from a list of all topics, make it unknown."""
    metadata = Metadata()
    metadata.absorb(told(), ["t"])
    assert metadata.absorb(told(error=3), ["t"])["t"].error == 3
    assert metadata.topic("t") is None
    metadata.absorb(told(), ["t"])
    metadata.absorb(MetadataResponse(brokers=[], cluster_id="c", controller_id=1, topics=[], version=12), None)
    assert metadata.topic("t") is None
    assert set(metadata.brokers) == {1, 2}


def test_distrust_lasts_until_the_next_answer() -> None:
    """A distrusted topic has no leaders until it is told anew, and its epochs still count."""
    metadata = Metadata()
    metadata.absorb(told(leader=2, epoch=5), ["t"])
    metadata.distrust("t")
    assert metadata.leader(ZERO) is None
    metadata.absorb(told(leader=1, epoch=4), ["t"])
    assert metadata.leader(ZERO) == Leader(2, 5)


def test_leaders_from_other_answers_count_when_newer() -> None:
    """A leader named by a fetch or produce answer is taken with a higher epoch only, and for known partitions only."""
    metadata = Metadata()
    metadata.absorb(told(leader=2, epoch=5), ["t"])
    metadata.note_leader(ZERO, Leader(1, 5))
    metadata.note_leader(TopicPartition("u", 0), Leader(1, 9))
    assert metadata.leader(ZERO) == Leader(2, 5)
    metadata.note_leader(ZERO, Leader(1, 6))
    assert metadata.leader(ZERO) == Leader(1, 6)


def test_another_cluster_is_refused() -> None:
    """A response of another cluster is not taken in, and both ids are named; one without an id passes."""
    metadata = Metadata()
    metadata.absorb(told(cluster="c"), ["t"])
    metadata.absorb(told(cluster=None), ["t"])
    with pytest.raises(TwinlogError, match="cluster d, not to c"):
        metadata.absorb(told(cluster="d", leader=2, epoch=9), ["t"])
    assert metadata.leader(ZERO) == Leader(1, 0)
