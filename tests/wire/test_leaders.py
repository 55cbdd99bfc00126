"""Questions to leaders, with a cluster that is made up."""

from collections.abc import Collection, Mapping
from typing import cast

from twinlog.errors import ConnectionLost
from twinlog.names import TopicPartition
from twinlog.wire import codes, leaders
from twinlog.wire.cluster import Cluster, Leader, PartitionInfo, TopicInfo
from twinlog.wire.leaders import Answer, ask_leaders
from twinlog.wire.metadata import NO_ID

PARTITIONS = [TopicPartition("t", n) for n in range(4)]


class FakeCluster:
    """Leads partition n of topic t from node n % 2, in an epoch that rises with every question for metadata."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.refreshes = 0
        self.known: dict[TopicPartition, Leader] = {}
        self.error = 0

    def leader(self, tp: TopicPartition) -> Leader | None:
        """As last told."""
        return self.known.get(tp)

    async def topics(self, names: Collection[str], **_more: float) -> dict[str, TopicInfo]:
        """Tell leaders anew."""
        self.refreshes += 1
        if self.error:
            return {name: TopicInfo(name, NO_ID, self.error, internal=False) for name in names}
        parts = {n: PartitionInfo(n % 2, self.refreshes, (0, 1), (0, 1), 0) for n in range(4)}
        self.known = {TopicPartition("t", n): Leader(p.leader, p.leader_epoch) for n, p in parts.items()}
        return {"t": TopicInfo("t", NO_ID, 0, internal=False, partitions=parts)}


class Brokers:
    """Answers with the codes in `script`, first to last, then with 0; notes who was asked."""

    def __init__(self, *script: int | Exception) -> None:
        """Begin with the first of the script."""
        self.script = list(script)
        self.asked: list[tuple[int, set[TopicPartition]]] = []

    async def __call__(
        self, node: int, asked: Mapping[TopicPartition, tuple[Leader, str]], _timeout_s: float
    ) -> dict[TopicPartition, Answer[str]]:
        """Answer one request."""
        self.asked.append((node, set(asked)))
        answer = self.script.pop(0) if self.script else 0
        if isinstance(answer, Exception):
            raise answer
        return {tp: Answer(answer, f"{question}@{leader.epoch}") for tp, (leader, question) in asked.items()}


async def ask(
    cluster: FakeCluster, brokers: Brokers, count: int = 4, timeout_s: float = 5.0
) -> dict[TopicPartition, Answer[str]]:
    """Ask about the first partitions."""
    return await ask_leaders(
        cast("Cluster", cluster), dict.fromkeys(PARTITIONS[:count], "q"), brokers, timeout_s=timeout_s
    )


async def test_one_request_for_each_broker() -> None:
    """Partitions are grouped by leader, and metadata is asked for once."""
    cluster, brokers = FakeCluster(), Brokers()
    answers = await ask(cluster, brokers)
    assert {tp: a.value for tp, a in answers.items()} == dict.fromkeys(PARTITIONS, "q@1")
    assert sorted(node for node, _ in brokers.asked) == [0, 1]
    assert cluster.refreshes == 1


async def test_a_moved_leader_is_found_anew() -> None:
    """Only the refused part is asked again, in the new epoch."""
    cluster, brokers = FakeCluster(), Brokers(codes.NOT_LEADER_OR_FOLLOWER)
    answers = await ask(cluster, brokers)
    assert {a.error for a in answers.values()} == {0}
    assert sorted(a.value or "" for a in answers.values()) == ["q@1", "q@1", "q@2", "q@2"]
    assert len(brokers.asked) == 3
    assert cluster.refreshes == 2


async def test_what_only_needs_time_asks_for_no_metadata() -> None:
    """An offset that is not available yet is asked for again of the same leader."""
    cluster, brokers = FakeCluster(), Brokers(codes.OFFSET_NOT_AVAILABLE)
    assert (await ask(cluster, brokers, 1))[PARTITIONS[0]].error == 0
    assert cluster.refreshes == 1


async def test_a_final_code_is_an_answer() -> None:
    """Out of range is not asked again."""
    brokers = Brokers(codes.OFFSET_OUT_OF_RANGE)
    answers = await ask(FakeCluster(), brokers, 1)
    assert answers[PARTITIONS[0]].error == codes.OFFSET_OUT_OF_RANGE
    assert len(brokers.asked) == 1


async def test_a_broken_connection_becomes_a_code_after_the_bound() -> None:
    """The other broker's answers are there all the same."""
    brokers = Brokers(*[ConnectionLost("gone")] * 50)
    answers = await ask(FakeCluster(), brokers, 1, timeout_s=0.5)
    assert answers[PARTITIONS[0]] == Answer(codes.NETWORK_EXCEPTION)
    assert 2 <= len(brokers.asked) <= 5


async def test_a_lost_connection_is_tried_again() -> None:
    """One break costs one more round."""
    assert {a.error for a in (await ask(FakeCluster(), Brokers(ConnectionLost("gone")))).values()} == {0}


async def test_an_unknown_topic_is_given_up_sooner() -> None:
    """It may have been created this moment, but is not waited for to the end of a long bound."""
    cluster = FakeCluster()
    cluster.error = codes.UNKNOWN_TOPIC_OR_PARTITION
    leaders_patience, leaders.UNKNOWN_TOPIC_PATIENCE_S = leaders.UNKNOWN_TOPIC_PATIENCE_S, 0.2
    try:
        answers = await ask(cluster, Brokers(), 1, timeout_s=60.0)
    finally:
        leaders.UNKNOWN_TOPIC_PATIENCE_S = leaders_patience
    assert answers[PARTITIONS[0]].error == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.refreshes >= 2
