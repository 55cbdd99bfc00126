"""How an administrator's requests are sent: reads again while their broker cannot be reached, changes once.

A controller that moved (41) is looked up and asked again: it had done nothing. Changes that do no harm twice (ACLs) may
be sent again for more.
"""

from collections.abc import Collection
from typing import Final

from twinlog.errors import (
    BadInput,
    InvalidConfig,
    InvalidReplicationFactor,
    InvalidRequest,
    RetryLater,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    Unreachable,
)
from twinlog.wire import codes
from twinlog.wire.cluster import CONTROL_LANE, Cluster
from twinlog.wire.messages import Message
from twinlog.wire.retry import ANSWER_SLACK_S, Attempts

ADMIN_LANE: Final = "admin"  # the controller takes its time, and a lane waits behind each request
PATIENCE_S: Final = 15.0
NOT_DONE: Final = frozenset({codes.NOT_CONTROLLER})
"""What says that nothing was done, since it was not the controller that was asked."""

# What the user can put right, by Kafka's code; everything else is for `codes.check`.
_INPUT_ERRORS: Final[dict[int, type[BadInput]]] = {
    codes.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicOrPartition,
    codes.INVALID_TOPIC_EXCEPTION: InvalidRequest,
    codes.TOPIC_ALREADY_EXISTS: TopicAlreadyExists,
    codes.INVALID_PARTITIONS: InvalidRequest,
    codes.INVALID_REPLICATION_FACTOR: InvalidReplicationFactor,
    codes.INVALID_REPLICA_ASSIGNMENT: InvalidRequest,
    codes.INVALID_CONFIG: InvalidConfig,
    codes.INVALID_REQUEST: InvalidRequest,
    codes.POLICY_VIOLATION: InvalidRequest,
}


async def ask(
    cluster: Cluster,
    request: Message,
    *,
    node: int | None,
    timeout_s: float,
    min_version: int = 0,
    max_version: int | None = None,
    lane: str = CONTROL_LANE,
) -> Message:
    """Ask a question that changes nothing, again while its broker cannot be reached or does not answer."""
    attempts = Attempts(timeout_s)
    while True:
        try:
            return await cluster.call(
                request,
                node=node,
                timeout_s=attempts.share_s(cluster.request_timeout_s),
                min_version=min_version,
                max_version=max_version,
                lane=lane,
            )
        except RetryLater as lost:
            reason = lost
        if not await attempts.again():
            raise reason


async def ask_controller(
    cluster: Cluster,
    request: Message,
    *,
    timeout_s: float,
    min_version: int = 0,
    max_version: int | None = None,
    again: Collection[int] = NOT_DONE,
    harmless: bool = False,
) -> Message:
    """Send to the controller (any broker forwards to it where there is KRaft), and again where that is right.

    That is where an answer has one of the codes `again`, and where nothing was sent; with `harmless`, for what may be
    done twice, also where its outcome is unknown. After `timeout_s` the last answer is returned, or its loss raised.
    """
    attempts = Attempts(timeout_s)
    lost = RetryLater if harmless else Unreachable
    while True:
        try:
            response = await cluster.call(
                request,
                node=Cluster.CONTROLLER,
                timeout_s=(attempts.share_s(timeout_s) if harmless else timeout_s) + ANSWER_SLACK_S,
                min_version=min_version,
                max_version=max_version,
                lane=ADMIN_LANE,
            )
        except lost:
            if not await attempts.again():
                raise
        else:
            if codes_of(response).isdisjoint(again) or not await attempts.again():
                return response
        await cluster.topics([], timeout_s=attempts.share_s(timeout_s))


def codes_of(response: Message) -> set[int]:
    """Return all codes of an admin response: its own, and those of the entries in its one list."""
    found = {getattr(response, "error_code", codes.NONE)}
    for name in ("topics", "results", "responses", "filter_results"):
        found |= {entry.error_code for entry in getattr(response, name, None) or ()}
    return found


def check(code: int, what: str, detail: str | None, *, right: str = "") -> None:
    """Raise what an error code of an administrator's request means, `what` first and then the broker's own words."""
    kind = _INPUT_ERRORS.get(code)
    if kind is None:
        codes.check(code, what, detail, right=right)
        return
    said = (detail or "").strip().rstrip(".")
    raise kind(f"{what} ({codes.code_name(code)}){': ' + said if said else ''}. Nothing was changed.")
