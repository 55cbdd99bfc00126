"""The only place where progress moves: what an answer means for where a partition stands."""

from twinlog.errors import GiveWay, PartitionFailed, TakeOverAnew
from twinlog.relay.progress import Accepted, Answer, Displaced, LeaseLost, Plan, Progress, Refused, Unknown
from twinlog.wire import codes

# By which limit a batch is too large.
TOO_LARGE = {
    codes.MESSAGE_TOO_LARGE: "max.message.bytes of the destination topic (and message.max.bytes of its brokers)",
    codes.RECORD_LIST_TOO_LARGE: "segment.bytes of the destination topic",
}
# Refused before the log was touched, and no sign of another writer: the log can be read at once.
HARMLESS = {codes.NOT_ENOUGH_REPLICAS}
# Our own mistake, or a topic config that somebody changed: sending the same again cannot help.
OUR_MISTAKE = {codes.INVALID_TIMESTAMP, codes.INVALID_TXN_STATE, codes.INVALID_RECORD}


def confirm(progress: Progress, plan: Plan, answer: Answer) -> Progress:
    """Where the partition stands after `answer`.

    Raises TakeOverAnew where the destination's log has to be read first (`settle` says whether to wait before),
    GiveWay where the lease is gone, PartitionFailed where going on would be wrong.
    """
    if isinstance(answer, Accepted):
        return plan.after
    raise _surprise(progress, answer)


def _surprise(progress: Progress, answer: Refused | Unknown | Displaced | LeaseLost) -> Exception:
    where = progress.where
    if isinstance(answer, Displaced):
        return PartitionFailed(
            f"{where}: what belongs at offset {answer.expected} was appended at offset {answer.found}. Somebody "
            f"else writes to this mirror topic. Nothing more is written. Stop the topic, remove the other writer, "
            f"delete the destination topic and start it again."
        )
    if isinstance(answer, LeaseLost):
        return GiveWay(f"{where}: the lease ran out before offset {answer.first} could be sent")
    if isinstance(answer, Unknown):
        return TakeOverAnew(f"{where}: no answer for what was sent from offset {answer.first} on: {answer.reason}")
    return _refusal(progress, answer)


def _refusal(progress: Progress, refused: Refused) -> Exception:
    where = progress.where
    said = f" ({refused.message})" if refused.message else ""
    if refused.code in TOO_LARGE:
        limit = TOO_LARGE[refused.code]
        return PartitionFailed(
            f"{where}: the batch at offset {refused.first} has {refused.size} bytes, more than the destination "
            f"takes{said}. Raise {limit} above the source's; it is tried again by itself.",
            retriable=True,
        )
    if refused.code == codes.TOPIC_AUTHORIZATION_FAILED:
        return PartitionFailed(
            f"{where}: the destination refuses the write at offset {refused.first}. Grant WRITE on topic "
            f"{where.topic} to the worker's principal; it is tried again by itself.",
            retriable=True,
        )
    if refused.code == codes.CLUSTER_AUTHORIZATION_FAILED:
        return PartitionFailed(
            f"{where}: the destination refuses the marker at offset {refused.first}. Grant ALTER or CLUSTER_ACTION "
            f"on CLUSTER to the worker's principal; it is tried again by itself.",
            retriable=True,
        )
    if refused.code == codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return PartitionFailed(
            f"{where}: a long run of blanks at offset {refused.first} needs WRITE on transactional ids that begin with "
            f"twinlog-fill-{said}. Grant it to the worker's principal; it is tried again by itself.",
            retriable=True,
        )
    if refused.code in OUR_MISTAKE:
        return PartitionFailed(
            f"{where}: the destination refuses the batch at offset {refused.first} with error {refused.code}{said}. "
            f"Compare the configs of the destination topic with those that a mirror needs, then stop and start the "
            f"topic."
        )
    return TakeOverAnew(
        f"{where}: the destination answered error {refused.code} at offset {refused.first}{said}",
        settle=refused.code not in HARMLESS,
    )
