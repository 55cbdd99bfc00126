"""What a transactional id is doing now, as its coordinator tells it (KIP-664)."""

from dataclasses import dataclass
from typing import Final

from kafka.protocol.admin import DescribeTransactionsRequest, DescribeTransactionsResponse

from twinlog.errors import RetryLater
from twinlog.names import TopicPartition
from twinlog.wire import codes
from twinlog.wire.admin_calls import ADMIN_LANE
from twinlog.wire.cluster import Cluster
from twinlog.wire.retry import Attempts

ENDING: Final = frozenset({"PrepareCommit", "PrepareAbort"})
_UNKNOWN_ID: Final = 105
_ASK_ANEW: Final = frozenset(
    {codes.COORDINATOR_NOT_AVAILABLE, codes.NOT_COORDINATOR, codes.COORDINATOR_LOAD_IN_PROGRESS}
)


@dataclass(frozen=True, slots=True)
class TransactionState:
    """Kafka's name of the state, and the partitions: while it ends, only those whose marker is still missing."""

    name: str
    partitions: frozenset[TopicPartition]

    @property
    def unmarked(self) -> frozenset[TopicPartition]:
        """The partitions that keep the transaction from ending."""
        return self.partitions if self.name in ENDING else frozenset()


async def describe_transaction(cluster: Cluster, transactional_id: str, *, timeout_s: float) -> TransactionState | None:
    """Ask the coordinator of `transactional_id`; None where that does not know the id.

    Raises UnsupportedVersion before Kafka 3.0, AuthorizationFailed (DESCRIBE on the transactional id), and what else
    the coordinator answers.
    """
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    what = f"The transaction of {transactional_id!r} could not be described on the {cluster}"
    attempts, refresh = Attempts(timeout_s), False
    while True:
        try:
            node = await cluster.coordinator(
                transactional_id, "transaction", refresh=refresh, timeout_s=attempts.share_s(timeout_s)
            )
            response: DescribeTransactionsResponse = await cluster.call(
                request, node=node, timeout_s=attempts.share_s(timeout_s), lane=ADMIN_LANE
            )
        except RetryLater:  # nothing is changed by asking again
            refresh = True
            if not await attempts.again():
                raise
            continue
        told = response.transaction_states[0]
        if told.error_code == _UNKNOWN_ID:
            return None
        refresh = told.error_code in _ASK_ANEW
        if not refresh or not await attempts.again():
            right = f"DESCRIBE on TRANSACTIONAL_ID {transactional_id}"
            codes.check(told.error_code, what, right=right)
            found = frozenset(TopicPartition(one.topic, number) for one in told.topics for number in one.partitions)
            return TransactionState(told.transaction_state, found)
