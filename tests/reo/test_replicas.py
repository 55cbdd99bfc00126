"""Which partitions have too few replicas in sync, and whether a transaction waits for them."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from twinlog.errors import AuthorizationFailed
from twinlog.names import TopicPartition
from twinlog.reo import replicas
from twinlog.reo.replicas import Replicas, coordinator_partition, held, short_of_replicas, what_holds
from twinlog.wire.metadata import PartitionInfo, TopicInfo
from twinlog.wire.ops_transactions import TransactionState

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def one(*, leader: int = 1, in_sync: tuple[int, ...] = (1,), needed: int | None = 2) -> Replicas:
    """A partition with replicas on brokers 1 and 3."""
    return Replicas(T2, leader, (1, 3), in_sync, needed)


def topic(name: str, *in_sync: tuple[int, ...]) -> TopicInfo:
    """A topic with replicas on brokers 1 and 3."""
    return TopicInfo(
        name,
        UUID(int=1),
        0,
        internal=False,
        partitions={n: PartitionInfo(1, 0, (1, 3), isr, 0) for n, isr in enumerate(in_sync)},
    )


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Topic t lacks a replica of partitions 1 and 2; `state` is what the transaction does, `needed` the config."""
    told = SimpleNamespace(
        state=TransactionState("PrepareAbort", frozenset({T0, T2})),
        needed="2",
        known={"t": topic("t", (1, 3), (1,), (1,)), "__transaction_state": topic("__transaction_state", (1, 3))},
    )

    async def topics(names: Any) -> dict[str, TopicInfo]:
        return {name: told.known[name] for name in names}

    async def describe(*_: object, timeout_s: float) -> TransactionState | None:
        del timeout_s
        if isinstance(told.state, Exception):
            raise told.state
        state: TransactionState | None = told.state
        return state

    async def configs(_: object, kind: str, names: list[str], **__: object) -> Mapping[str, Any]:
        assert kind == "topic"
        if told.needed is None:
            raise AuthorizationFailed("DESCRIBE_CONFIGS")
        return {name: {"min.insync.replicas": SimpleNamespace(value=told.needed)} for name in names}

    told.topics = topics
    monkeypatch.setattr(replicas, "describe_transaction", describe)
    monkeypatch.setattr(replicas, "describe_configs", configs)
    return told


def test_too_few_are_fewer_than_needed_or_no_leader() -> None:
    """More than there are is never needed; where it is not known, nothing is claimed."""
    assert one().too_few
    assert not one(in_sync=(1, 3), needed=3).too_few
    assert not one(needed=1).too_few
    assert one(leader=-1, needed=None).too_few
    assert (one(needed=None).too_few, one(needed=None).suspect) == (False, True)


def test_what_is_said_names_partition_brokers_setting_and_remedy() -> None:
    """Also without a leader, and without the right to read the setting."""
    assert str(one()) == (
        "t-2 has 1 of 2 replicas in sync (replicas on brokers 1, 3; in sync: 1), and min.insync.replicas is 2. "
        "Bring broker 3 back, or lower min.insync.replicas of t."
    )
    assert "min.insync.replicas may not be read (DESCRIBE_CONFIGS)" in str(one(needed=None))
    assert str(one(leader=-1)).startswith("t-2 has no leader (replicas on brokers 1, 3; in sync: 1)")
    assert str(one(leader=-1)).endswith("Bring broker 3 back.")


def test_of_very_many_partitions_a_few_are_named() -> None:
    """And how many more there are."""
    many = [Replicas(TopicPartition("t", number), 1, (1, 3), (1,), 2) for number in range(9)]
    told = held("copy-0", many)
    assert told.startswith("The transaction of copy-0 cannot end, so that nothing that shares it is copied: t-0 has")
    assert "And 4 partitions more." in told


async def test_those_that_lack_too_many_are_found(cluster: Any) -> None:
    """Where one replica is enough, none is."""
    assert set(await short_of_replicas(cluster, {"t"})) == {T1, T2}
    cluster.needed = "1"
    assert await short_of_replicas(cluster, {"t"}) == {}
    assert await short_of_replicas(cluster, set()) == {}


async def test_only_what_the_transaction_waits_for_holds_it(cluster: Any) -> None:
    """The coordinator knows; where it may not be asked, what may have been written."""
    assert [found.where for found in await what_holds(cluster, "copy-0", [T1])] == [T2]
    cluster.state = AuthorizationFailed("DESCRIBE")
    assert [found.where for found in await what_holds(cluster, "copy-0", [T0, T1])] == [T1]
    cluster.state = None
    assert await what_holds(cluster, "copy-0", [T1]) == []


async def test_without_the_right_to_read_the_setting_what_lacks_a_replica_is_suspected(cluster: Any) -> None:
    """But it is not left out of transactions for that."""
    cluster.needed = None
    assert [found.where for found in await what_holds(cluster, "copy-0", [])] == [T2]
    assert await short_of_replicas(cluster, {"t"}) == {}


async def test_what_is_only_suspected_does_not_hold_a_transaction_that_is_not_ending(cluster: Any) -> None:
    """Its coordinator waits for no marker; too few replicas are in the way of its end all the same."""
    cluster.state, cluster.needed = TransactionState("Ongoing", frozenset({T0, T2})), None
    assert await what_holds(cluster, "copy-0", [T1]) == []
    cluster.needed = "2"
    assert [found.where for found in await what_holds(cluster, "copy-0", [T1])] == [T2]


async def test_the_coordinators_own_topic_holds_it_too(cluster: Any) -> None:
    """Then no transaction can be decided."""
    cluster.known["__transaction_state"] = topic("__transaction_state", (1,))
    found = await what_holds(cluster, "copy-0", [])
    assert {one.where.topic for one in found} == {"t", "__transaction_state"}


def test_an_id_is_kept_where_javas_hash_says() -> None:
    """Known values of `String.hashCode`: 96354 of abc, -1 is made positive, and of no letter 0."""
    assert coordinator_partition("abc", 50) == 96354 % 50
    assert coordinator_partition("", 50) == 0
    assert coordinator_partition("polygenelubricants", 50) == 0  # the lowest integer of all
    assert coordinator_partition("hello world", 1_000_000_007) == 1_794_106_052 % 1_000_000_007
