"""Kafka's error codes: their names, which of them may pass by themselves, and what a caller does next.

Names follow `org.apache.kafka.common.protocol.Errors`; the list and the retriable flags come from kafka-python, with
the few corrections that its older names and flags need. The groups are ours: one for each branch of `twinlog.errors`.
"""

from typing import Final, NoReturn

from kafka.errors import kafka_errors

from twinlog.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    BrokerError,
    GiveWay,
    PartitionFailed,
    RefreshLeader,
    TakeOverAnew,
    TwinlogError,
    UnsupportedVersion,
)

UNKNOWN_SERVER_ERROR: Final = -1
NONE: Final = 0
OFFSET_OUT_OF_RANGE: Final = 1
CORRUPT_MESSAGE: Final = 2
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
LEADER_NOT_AVAILABLE: Final = 5
NOT_LEADER_OR_FOLLOWER: Final = 6
REQUEST_TIMED_OUT: Final = 7
REPLICA_NOT_AVAILABLE: Final = 9
MESSAGE_TOO_LARGE: Final = 10
NETWORK_EXCEPTION: Final = 13
COORDINATOR_LOAD_IN_PROGRESS: Final = 14
COORDINATOR_NOT_AVAILABLE: Final = 15
NOT_COORDINATOR: Final = 16
INVALID_TOPIC_EXCEPTION: Final = 17
RECORD_LIST_TOO_LARGE: Final = 18
NOT_ENOUGH_REPLICAS: Final = 19
NOT_ENOUGH_REPLICAS_AFTER_APPEND: Final = 20
TOPIC_AUTHORIZATION_FAILED: Final = 29
GROUP_AUTHORIZATION_FAILED: Final = 30
CLUSTER_AUTHORIZATION_FAILED: Final = 31
INVALID_TIMESTAMP: Final = 32
UNSUPPORTED_SASL_MECHANISM: Final = 33
ILLEGAL_SASL_STATE: Final = 34
UNSUPPORTED_VERSION: Final = 35
TOPIC_ALREADY_EXISTS: Final = 36
INVALID_PARTITIONS: Final = 37
INVALID_REPLICATION_FACTOR: Final = 38
INVALID_REPLICA_ASSIGNMENT: Final = 39
INVALID_CONFIG: Final = 40
NOT_CONTROLLER: Final = 41
INVALID_REQUEST: Final = 42
POLICY_VIOLATION: Final = 44
OUT_OF_ORDER_SEQUENCE_NUMBER: Final = 45
DUPLICATE_SEQUENCE_NUMBER: Final = 46
INVALID_PRODUCER_EPOCH: Final = 47
INVALID_TXN_STATE: Final = 48
INVALID_PRODUCER_ID_MAPPING: Final = 49
CONCURRENT_TRANSACTIONS: Final = 51
TRANSACTION_COORDINATOR_FENCED: Final = 52
TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Final = 53
SECURITY_DISABLED: Final = 54
KAFKA_STORAGE_ERROR: Final = 56
SASL_AUTHENTICATION_FAILED: Final = 58
UNKNOWN_PRODUCER_ID: Final = 59
DELEGATION_TOKEN_AUTHORIZATION_FAILED: Final = 65
NON_EMPTY_GROUP: Final = 68
GROUP_ID_NOT_FOUND: Final = 69
FETCH_SESSION_ID_NOT_FOUND: Final = 70
INVALID_FETCH_SESSION_EPOCH: Final = 71
LISTENER_NOT_FOUND: Final = 72
FENCED_LEADER_EPOCH: Final = 74
UNKNOWN_LEADER_EPOCH: Final = 75
OFFSET_NOT_AVAILABLE: Final = 78
ELECTION_NOT_NEEDED: Final = 84
INVALID_RECORD: Final = 87
THROTTLING_QUOTA_EXCEEDED: Final = 89
PRODUCER_FENCED: Final = 90
UNKNOWN_TOPIC_ID: Final = 100
INCONSISTENT_TOPIC_ID: Final = 103
FETCH_SESSION_TOPIC_ID_ERROR: Final = 106

_NAMES: Final[dict[int, str]] = {code: kind.message for code, kind in kafka_errors.items() if code is not None} | {
    UNKNOWN_SERVER_ERROR: "UNKNOWN_SERVER_ERROR",
    NONE: "NONE",
    NOT_LEADER_OR_FOLLOWER: "NOT_LEADER_OR_FOLLOWER",
    MESSAGE_TOO_LARGE: "MESSAGE_TOO_LARGE",
    INVALID_TOPIC_EXCEPTION: "INVALID_TOPIC_EXCEPTION",
    INVALID_REPLICA_ASSIGNMENT: "INVALID_REPLICA_ASSIGNMENT",
    128: "INVALID_REGULAR_EXPRESSION",
    129: "REBOOTSTRAP_REQUIRED",
    130: "STREAMS_INVALID_TOPOLOGY",
    131: "STREAMS_INVALID_TOPOLOGY_EPOCH",
    132: "STREAMS_TOPOLOGY_FENCED",
    133: "SHARE_SESSION_LIMIT_REACHED",
}
# `CorruptRecordException` is retriable in Kafka: the bytes may have been damaged on their way.
_RETRIABLE: Final = frozenset({code for code, kind in kafka_errors.items() if kind.retriable} | {CORRUPT_MESSAGE})

# Metadata, or the place of a coordinator or controller, must be asked for again before the next attempt.
REFRESH: Final = frozenset(
    {
        UNKNOWN_TOPIC_OR_PARTITION,
        LEADER_NOT_AVAILABLE,
        NOT_LEADER_OR_FOLLOWER,
        REPLICA_NOT_AVAILABLE,
        NETWORK_EXCEPTION,
        COORDINATOR_NOT_AVAILABLE,
        NOT_COORDINATOR,
        NOT_CONTROLLER,
        KAFKA_STORAGE_ERROR,
        LISTENER_NOT_FOUND,
        FENCED_LEADER_EPOCH,
        UNKNOWN_LEADER_EPOCH,
        UNKNOWN_TOPIC_ID,
        INCONSISTENT_TOPIC_ID,
    }
)
# The same request may simply be sent again, after a backoff.
SAME_AGAIN: Final = frozenset(
    {COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS}
)
AUTHORIZATION: Final = frozenset(
    {
        TOPIC_AUTHORIZATION_FAILED,
        GROUP_AUTHORIZATION_FAILED,
        CLUSTER_AUTHORIZATION_FAILED,
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
_RIGHTS: Final[dict[int, str]] = {
    TOPIC_AUTHORIZATION_FAILED: "the topic",
    GROUP_AUTHORIZATION_FAILED: "the group",
    CLUSTER_AUTHORIZATION_FAILED: "the cluster",
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the transactional id",
    DELEGATION_TOKEN_AUTHORIZATION_FAILED: "the delegation token",
}
_AUTHENTICATION: Final = frozenset({UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED})
_FENCED: Final = frozenset({INVALID_PRODUCER_EPOCH, PRODUCER_FENCED})
# The log is not as this process believed: its end must be read before anything else is written.
_READ_AGAIN: Final = frozenset(
    {
        OUT_OF_ORDER_SEQUENCE_NUMBER,
        DUPLICATE_SEQUENCE_NUMBER,
        TRANSACTION_COORDINATOR_FENCED,
        UNKNOWN_PRODUCER_ID,
    }
)
# Requests that no broker would ever accept: sending them again cannot help.
_HOPELESS: Final = frozenset(
    {MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP, INVALID_TXN_STATE, INVALID_RECORD}
)


def code_name(code: int) -> str:
    """Return Kafka's constant for an error code; a code that is newer than this list gets a name with its number."""
    return _NAMES.get(code, f"UNKNOWN_CODE_{code}")


def retriable(code: int) -> bool:
    """Say whether Kafka's clients retry this code (`RetriableException`)."""
    return code in _RETRIABLE


def check(code: int, what: str, detail: str | None = None, *, right: str = "") -> None:
    """Raise the error of ours that says what the caller does next, unless the code is 0.

    Parameters: `what` begins the sentence ("Cluster dr: topic orders-3 could not be read"); `detail` is the broker's
    own message, where the response has one; `right` is the right that a refusal for want of one means, where the
    caller knows it ("READ on TOPIC orders").

    Raises AuthorizationFailed, AuthenticationFailed, UnsupportedVersion, RefreshLeader, TakeOverAnew (45, 46, 52, 59),
    GiveWay (47, 90), PartitionFailed (10, 18, 32, 48, 87), and BrokerError for everything else; its `code` says whether
    it is `retriable`.
    """
    if code != NONE:
        _raise(code, what, detail, right)


def _raise(code: int, what: str, detail: str | None, right: str) -> NoReturn:
    said = f": {detail.strip().rstrip('.')}" if detail and detail.strip() else ""
    sentence = f"{what} ({code_name(code)}, error {code}){said}."
    if code in AUTHORIZATION:
        wanted = right or f"the missing right on {_RIGHTS[code]}"
        raise AuthorizationFailed(f"{sentence} Grant this client's principal {wanted}.")
    for group, error in _GROUPS:
        if code in group:
            raise error(sentence)
    raise BrokerError(sentence, code=code, name=code_name(code))


_GROUPS: Final[tuple[tuple[frozenset[int], type[TwinlogError]], ...]] = (
    (REFRESH, RefreshLeader),
    (_AUTHENTICATION, AuthenticationFailed),
    (frozenset({UNSUPPORTED_VERSION}), UnsupportedVersion),
    (_FENCED, GiveWay),
    (_READ_AGAIN, TakeOverAnew),
    (_HOPELESS, PartitionFailed),
)
