"""What a coordinator says of a transaction."""

from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.errors import AuthorizationFailed, ConnectionLost
from twinlog.names import TopicPartition
from twinlog.wire import codes
from twinlog.wire.ops_transactions import TransactionState, describe_transaction


def answer(code: int, state: str = "", **topics: list[int]) -> Any:
    """A response about one transactional id."""
    found = [SimpleNamespace(topic=name, partitions=numbers) for name, numbers in topics.items()]
    return SimpleNamespace(transaction_states=[SimpleNamespace(error_code=code, transaction_state=state, topics=found)])


def cluster_of(*answers: Any) -> Any:
    """A cluster whose coordinator answers so, one after the other; it notes whether it was looked up anew."""
    left, looked = list(answers), list[bool]()

    async def coordinator(*_: object, refresh: bool, **__: object) -> int:
        looked.append(refresh)
        return 1

    async def call(*_: object, **__: object) -> Any:
        told = left.pop(0)
        if isinstance(told, Exception):
            raise told
        return told

    return SimpleNamespace(coordinator=coordinator, call=call, looked=looked)


async def test_while_it_ends_the_partitions_without_a_marker_are_told() -> None:
    """Before and after, none keeps it from ending."""
    told = await describe_transaction(cluster_of(answer(0, "PrepareAbort", t=[2, 3])), "id", timeout_s=5)
    assert told is not None
    assert told.unmarked == {TopicPartition("t", 2), TopicPartition("t", 3)}
    assert TransactionState("Ongoing", told.partitions).unmarked == frozenset()


async def test_a_coordinator_that_moved_or_was_lost_is_looked_up_anew() -> None:
    """The question changes nothing, so it is asked again."""
    cluster = cluster_of(answer(codes.NOT_COORDINATOR), ConnectionLost("gone"), answer(0, "Empty"))
    assert await describe_transaction(cluster, "id", timeout_s=5) == TransactionState("Empty", frozenset())
    assert cluster.looked == [False, True, True]


async def test_an_unknown_id_has_no_transaction_and_a_missing_right_is_named() -> None:
    """DESCRIBE on the transactional id."""
    assert await describe_transaction(cluster_of(answer(105)), "id", timeout_s=5) is None
    refused = cluster_of(answer(codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    with pytest.raises(AuthorizationFailed, match="DESCRIBE on TRANSACTIONAL_ID id"):
        await describe_transaction(refused, "id", timeout_s=5)
