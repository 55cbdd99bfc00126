"""Every error of ours, in one tree, sorted by what the caller does next.

| class                | the caller                                                       |
|----------------------|------------------------------------------------------------------|
| `RetryLater`         | sends the same request again, after a backoff                    |
| `RefreshLeader`      | asks for metadata, then tries again                              |
| `TakeOverAnew`       | stops streaming this partition and reads the destination's log   |
| `GiveWay`            | stops writing: another worker owns this now                      |
| `PartitionFailed`    | puts this one partition into FAILED, and goes on with the others |
| `BadInput`           | prints the sentence on stderr and exits with 1                   |
| any other            | gives up what it was doing, and hands the sentence to a person   |

`to_do` is what an operator who sees it does next; the reference page lists it.

What one module raises for its neighbour to catch stands there (`relay.decide.Stopped`). A message says what happened,
to which partition, at which offsets, and what to do next.
"""

from twinlog.names import TopicPartition


class TwinlogError(Exception):
    """Root of all errors of ours; the text is a whole sentence for an operator."""

    to_do = "Do as the message says."


class RetryLater(TwinlogError):
    """The same request may succeed later; nothing is known to be wrong with it."""

    to_do = "Nothing: it is tried again, with a backoff."


class SourceBehind(RetryLater):
    """The source has nothing decided where the destination has something.

    Passing while a new leader of the source catches up with what it had; lasting where the source was truncated.
    """

    def __init__(self, where: TopicPartition, source_end: int, end: int) -> None:
        super().__init__(
            f"{where}: the destination ends at {end}, but the source has nothing decided from offset {source_end} on"
        )
        self.source_end = source_end
        self.end = end


class ConnectionLost(RetryLater):
    """A connection ended; for requests in flight the outcome is unknown."""


class RequestTimedOut(ConnectionLost):
    """No answer came within the bound; the connection was reset, the outcome is unknown."""


class Unreachable(RetryLater):
    """No address of a cluster answered; the message names the addresses and how long it was tried."""

    to_do = "See whether the brokers run and whether the addresses are right; it is tried again."


class UnknownOutcome(RetryLater):
    """A commit was asked for and no answer came: it may or may not stand, and must be found out, never assumed."""

    to_do = "Describe the mirror before the command is given again."


class BrokerError(RetryLater):
    """A broker answered with an error code that no caller has a better class for.

    `code` is Kafka's number, `name` its constant (`org.apache.kafka.common.protocol.Errors`).
    """

    def __init__(self, message: str, *, code: int, name: str) -> None:
        super().__init__(message)
        self.code = code
        self.name = name


class RefreshLeader(TwinlogError):
    """The broker asked is not, or no longer, the leader or coordinator."""

    to_do = "Nothing: the new leader is looked up."


class TakeOverAnew(TwinlogError):
    """What this worker believes of a destination log may no longer be true; read it again.

    `settle` false says that every answer is in, so that the log can be read at once.
    """

    to_do = "Nothing: the destination's log is read again."

    def __init__(self, message: str, *, settle: bool = True) -> None:
        super().__init__(message)
        self.settle = settle


class GiveWay(TwinlogError):
    """The lease is lost or another worker has fenced this one: write nothing more."""

    to_do = "Nothing: another worker goes on."


class ProtocolViolation(TwinlogError):
    """A peer sent bytes that no Kafka sends: a negative or huge length, a truncated response."""

    to_do = "See what stands between worker and broker; report it where that is nothing."


class UnsupportedVersion(TwinlogError):
    """The broker is too old (or too new) for a request; the message names both version ranges."""

    to_do = "Use brokers of a release that has the version named."


class AuthenticationFailed(TwinlogError):
    """The cluster refused the credentials; the message names cluster and mechanism."""

    to_do = "Correct the credentials or the brokers' users."


class AuthorizationFailed(TwinlogError):
    """A right is missing; the message names principal (where known), operation and resource."""

    to_do = "Grant the right that the message names; the worker tries again by itself."


class ClusterMirrorAuthorizationFailed(AuthorizationFailed):
    """A right to see or change mirrors is missing; the message names all that are needed."""

    error_name = "CLUSTER_MIRROR_AUTHORIZATION_FAILED"


class PartitionFailed(TwinlogError):
    """One mirror partition cannot go on; it becomes FAILED and its neighbours go on.

    `retriable` false means that only an operator can help (retryAttempt -1 in the state).
    """

    to_do = "Do as the error of the partition says, then run `--recover` where it is not tried again."

    def __init__(self, message: str, *, retriable: bool = False) -> None:
        super().__init__(message)
        self.retriable = retriable


class LogsDiffer(PartitionFailed):
    """Both logs were compared; `offset` is the first at which they do not hold the same.

    `rewritten_at`: the first at which the source holds another record than the one that the mirror wrote; -1: none is
    known, and it may be the destination that was changed.
    """

    def __init__(self, message: str, *, offset: int, rewritten_at: int = -1) -> None:
        super().__init__(message)
        self.offset = offset
        self.rewritten_at = rewritten_at


class CorruptBatch(PartitionFailed):
    """A batch whose checksum or structure is wrong; none of it may be passed on."""

    to_do = "Repair or delete the batch at the source, then start the topic again."

    def __init__(self, where: TopicPartition | None, offset: int, reason: str) -> None:
        at = f"{where} " if where is not None else ""
        super().__init__(
            f"{at}holds a corrupt batch at offset {offset}: {reason}. Nothing of it was written. "
            f"Repair or delete that batch at the source, then start the topic again."
        )
        self.offset = offset
        self.reason = reason


class BadInput(TwinlogError):
    """What the user gave is wrong; nothing was changed."""

    to_do = "Correct what the message names."


class ClusterMirrorError(BadInput):
    """An error of the mirror surface, with the name that KIP-1279 gives it."""

    error_name = "INVALID_REQUEST"


class InvalidRequest(ClusterMirrorError):
    """The request contradicts itself or the mirror's patterns."""

    to_do = "Give the command as the message says."


class InvalidConfig(ClusterMirrorError):
    """A config key is unknown or its value is not valid."""

    error_name = "INVALID_CONFIG"
    to_do = "Correct the key that the message names."


class ClusterMirrorAlreadyExists(ClusterMirrorError):
    """A mirror of that name exists."""

    error_name = "CLUSTER_MIRROR_ALREADY_EXISTS"
    to_do = "Choose another name, or delete the mirror first."


class UnknownClusterMirror(ClusterMirrorError):
    """No mirror of that name exists, or the topic is in no mirror."""

    error_name = "UNKNOWN_CLUSTER_MIRROR"
    to_do = "Run `--list` for the names there are."


class ClusterMirrorNotEmpty(ClusterMirrorError):
    """A mirror with active or paused topics cannot be deleted."""

    error_name = "CLUSTER_MIRROR_NOT_EMPTY"
    to_do = "Stop its topics first."


class TopicAlreadyInClusterMirror(ClusterMirrorError):
    """The topic is active in another mirror."""

    error_name = "TOPIC_ALREADY_IN_CLUSTER_MIRROR"
    to_do = "Stop it there first."


class TopicNotInClusterMirror(ClusterMirrorError):
    """The topic belongs to another mirror."""

    error_name = "TOPIC_NOT_IN_CLUSTER_MIRROR"
    to_do = "Name the mirror that it belongs to."


class MirrorTopicNotStopped(ClusterMirrorError):
    """Start needs a stopped topic."""

    error_name = "MIRROR_TOPIC_NOT_STOPPED"
    to_do = "Resume it where it is paused; else stop it first."


class MirrorTopicNotPaused(ClusterMirrorError):
    """Resume needs a paused topic."""

    error_name = "MIRROR_TOPIC_NOT_PAUSED"
    to_do = "Start it where it is stopped."


class MirrorTopicBeingStopped(ClusterMirrorError):
    """A topic that is stopped, or being stopped, cannot be paused."""

    error_name = "MIRROR_TOPIC_BEING_STOPPED"
    to_do = "Start it first."


class MirrorTopicBehind(ClusterMirrorError):
    """A promotion needs a topic that is level with its source; the message names what it lacks."""

    error_name = "MIRROR_TOPIC_BEHIND"
    to_do = "Wait until it is level, or stop it without `--check-lag`."


class InvalidClusterMirrorState(ClusterMirrorError):
    """The states of the partitions do not allow it, or not yet."""

    error_name = "INVALID_CLUSTER_MIRROR_STATE"
    to_do = "Describe the mirror, and try again when the states have changed."


class InconsistentTopicId(ClusterMirrorError):
    """A topic has another id than was given or recorded: it was deleted and created again."""

    error_name = "INCONSISTENT_TOPIC_ID"
    to_do = "Stop the topic, keep what is needed of it, delete it at the destination, then start it."


class TopicAlreadyExists(ClusterMirrorError):
    """The destination topic exists and cannot be adopted."""

    error_name = "TOPIC_ALREADY_EXISTS"
    to_do = "Do as the message says: delete the destination topic, or start it as what it is."


class UnknownTopicOrPartition(ClusterMirrorError):
    """No such topic."""

    error_name = "UNKNOWN_TOPIC_OR_PARTITION"
    to_do = "Correct the name, or create the topic."


class InvalidReplicationFactor(ClusterMirrorError):
    """The replication factor cannot be met, or contradicts min.insync.replicas."""

    error_name = "INVALID_REPLICATION_FACTOR"
    to_do = "Ask for as many replicas as there are brokers."


class ConcurrentChange(InvalidClusterMirrorState):
    """Another operator's command came in between; run the command again."""
