"""What the brokers of each side must be able to do, so that one that is too old says so before anything is done.

Which version of a request is used is agreed on each connection (KIP-35). Most requests have a version that every
broker still in use offers; those named here brought something without which a mirror cannot be exact.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kafka.protocol.admin import (
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest, WriteTxnMarkersRequest

from twinlog.errors import UnsupportedVersion
from twinlog.wire.cluster import Cluster
from twinlog.wire.connection import Connection
from twinlog.wire.messages import MessageClass, api_name, versions


class Need(NamedTuple):
    """A request that is needed in some version or a later one; `since` is the first Kafka release that has it."""

    request: MessageClass
    version: int
    since: str
    purpose: str


READING: Final = (
    Need(FetchRequest, 4, "0.11", "to read nothing but decided transactions"),
    Need(ListOffsetsRequest, 2, "0.11", "to ask for the last stable offset"),
    Need(DescribeConfigsRequest, 1, "1.1", "to see which configs a topic sets itself"),
)
"""Of the source; of both sides where they are only compared."""

WRITING: Final = (
    *READING,
    Need(ProduceRequest, 3, "0.11", "to write batches of an idempotent producer"),
    Need(ListOffsetsRequest, 4, "2.1", "to ask none but the leader for its log's end"),
    Need(DeleteRecordsRequest, 0, "0.11", "to follow the source's log start"),
    Need(IncrementalAlterConfigsRequest, 0, "2.3", "to change single configs of a topic"),
    Need(CreateTopicsRequest, 4, "2.4", "to create topics with as many replicas as the brokers' default"),
    Need(InitProducerIdRequest, 3, "2.5", "to hold the lease"),
    Need(WriteTxnMarkersRequest, 1, "2.8", "to write blanks"),
)
"""Of the destination."""


async def require(cluster: Cluster, needs: Sequence[Need]) -> None:
    """Ask one broker which requests it offers.

    Raises UnsupportedVersion, naming the broker, the request, both versions and the release to use; Unreachable.
    """
    connection = await cluster.any_connection()
    for need in needs:
        check(connection, need)


def check(connection: Connection, need: Need) -> None:
    """Raise UnsupportedVersion where the broker at the other end does not offer what is needed."""
    low, high = connection.offered(need.request)
    newest, name = versions(need.request)[1], api_name(need.request.API_KEY)
    if high < need.version:
        offered = f"versions {low} to {high}" if high >= 0 else "no version"
        raise UnsupportedVersion(
            f"{connection.peer} is too old: it offers {offered} of {name}, and version {need.version} is needed "
            f"{need.purpose}. Use brokers of Kafka {need.since} or newer."
        )
    if low > newest:
        raise UnsupportedVersion(
            f"{connection.peer} is too new: it offers versions {low} to {high} of {name}, and this program knows "
            f"versions up to {newest}. Use a newer twinlog."
        )
