"""Deletes one topic by its id, so that a topic that somebody made anew under the same name is never met."""

from typing import Final
from uuid import UUID

from kafka.protocol.admin import DeleteTopicsRequest, DeleteTopicsResponse

from twinlog.errors import ConnectionLost, UnknownTopicOrPartition, Unreachable
from twinlog.wire import codes
from twinlog.wire.admin_calls import ADMIN_LANE
from twinlog.wire.cluster import Cluster
from twinlog.wire.retry import ANSWER_SLACK_S, Attempts

_FIRST_BY_ID: Final = 6


async def delete_topic_by_id(cluster: Cluster, name: str, topic_id: UUID, *, timeout_s: float = 30.0) -> None:
    """Delete the topic with this id; `name` is for messages. Repeated where the answer was lost.

    Raises UnknownTopicOrPartition (no topic has this id), AuthorizationFailed, UnsupportedVersion before Kafka 2.8.
    """
    entry = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id)
    request = DeleteTopicsRequest(topics=[entry], timeout_ms=int(timeout_s * 1000))
    attempts, lost, code = Attempts(timeout_s), False, codes.NONE
    while True:
        try:
            response: DeleteTopicsResponse = await cluster.call(
                request,
                node=Cluster.CONTROLLER,
                timeout_s=timeout_s + ANSWER_SLACK_S,
                min_version=_FIRST_BY_ID,
                lane=ADMIN_LANE,
            )
        except (ConnectionLost, Unreachable):
            lost = True
            if not await attempts.again():
                raise
        else:
            code = response.responses[0].error_code
            if code != codes.NOT_CONTROLLER or not await attempts.again():
                break
        await cluster.topics([], timeout_s=attempts.share_s(timeout_s))
    if code == codes.UNKNOWN_TOPIC_ID:
        if lost:
            return  # by the request whose answer was lost
        raise UnknownTopicOrPartition(
            f"Topic '{name}' with id {topic_id} is no longer there on the {cluster}: somebody else deleted it just now."
        )
    codes.check(code, f"Topic '{name}' could not be deleted on the {cluster}")
