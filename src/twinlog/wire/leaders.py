"""Questions to the leaders of many partitions: one request a broker, and refusals that pass are asked again."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from twinlog.errors import ConnectionLost, RetryLater, Unreachable
from twinlog.names import TopicPartition
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster, Leader
from twinlog.wire.retry import Attempts

Q = TypeVar("Q")
A = TypeVar("A")

# A topic just created is unknown to some brokers for a moment; one that stays unknown is not there.
UNKNOWN_TOPIC_PATIENCE_S = 3.0

# Codes that pass by themselves, once the leader is asked for again where it moved.
PASSING = codes.REFRESH | {
    codes.REQUEST_TIMED_OUT,
    codes.OFFSET_NOT_AVAILABLE,
    codes.FETCH_SESSION_ID_NOT_FOUND,
    codes.THROTTLING_QUOTA_EXCEEDED,
}


@dataclass(frozen=True, slots=True)
class Answer(Generic[A]):
    """One partition's answer: Kafka's `error` code, and `value` where the leader gave one."""

    error: int
    value: A | None = None


# Sends one request to one broker, within so many seconds: the partitions it leads, in which epoch, and what is asked.
Asked = Mapping[TopicPartition, tuple[Leader, Q]]
Ask = Callable[[int, Asked[Q], float], Awaitable[Mapping[TopicPartition, Answer[A]]]]


async def ask_leaders(
    cluster: Cluster, questions: Mapping[TopicPartition, Q], ask: Ask[Q, A], *, timeout_s: float
) -> dict[TopicPartition, Answer[A]]:
    """Ask each partition's leader, grouped by broker, until every answer is final or `timeout_s` is over.

    The answer of a partition that failed to the end carries its last code: 13 (NETWORK_EXCEPTION) for a broker that
    cannot be reached or did not answer. For questions only that may be asked twice.
    """
    attempts = Attempts(timeout_s)
    answers: dict[TopicPartition, Answer[A]] = {}
    pending = dict(questions)
    refresh = False
    while True:
        answers |= await _ask_once(cluster, pending, ask, attempts.share_s(timeout_s), refresh=refresh)
        pending = {tp: q for tp, q in pending.items() if answers[tp].error in PASSING}
        if not pending or _hopeless(pending, answers, attempts) or not await attempts.again():
            return answers
        refresh = any(answers[tp].error in codes.REFRESH for tp in pending)


def _hopeless(
    pending: Mapping[TopicPartition, Q], answers: Mapping[TopicPartition, Answer[A]], attempts: Attempts
) -> bool:
    unknown = all(answers[tp].error == codes.UNKNOWN_TOPIC_OR_PARTITION for tp in pending)
    return unknown and attempts.elapsed_s > UNKNOWN_TOPIC_PATIENCE_S


async def _ask_once(
    cluster: Cluster, questions: Mapping[TopicPartition, Q], ask: Ask[Q, A], timeout_s: float, *, refresh: bool
) -> dict[TopicPartition, Answer[A]]:
    answers: dict[TopicPartition, Answer[A]] = await _learn_leaders(cluster, questions, timeout_s, refresh=refresh)
    by_node: dict[int, dict[TopicPartition, tuple[Leader, Q]]] = {}
    for tp, question in questions.items():
        leader = cluster.leader(tp)
        if leader is not None and tp not in answers:
            by_node.setdefault(leader.node, {})[tp] = (leader, question)
    for part in await asyncio.gather(*(_ask_node(ask, node, asked, timeout_s) for node, asked in by_node.items())):
        answers |= part
    return answers


async def _learn_leaders(
    cluster: Cluster, questions: Mapping[TopicPartition, Q], timeout_s: float, *, refresh: bool
) -> dict[TopicPartition, Answer[A]]:
    """Make sure that leaders are known; return answers for the partitions that have none."""
    lacking = [tp for tp in questions if refresh or cluster.leader(tp) is None]
    if not lacking:
        return {}
    try:
        told = await cluster.topics({tp.topic for tp in lacking}, timeout_s=timeout_s)
    except (ConnectionLost, Unreachable):
        return {tp: Answer(codes.NETWORK_EXCEPTION) for tp in lacking}
    answers: dict[TopicPartition, Answer[A]] = {}
    for tp in lacking:
        topic = told.get(tp.topic)
        part = topic.partitions.get(tp.partition) if topic is not None else None
        if topic is None or part is None:
            error = (topic.error if topic is not None else 0) or codes.UNKNOWN_TOPIC_OR_PARTITION
            answers[tp] = Answer(error)
        elif cluster.leader(tp) is None:
            answers[tp] = Answer(part.error or codes.LEADER_NOT_AVAILABLE)
    return answers


async def _ask_node(ask: Ask[Q, A], node: int, asked: Asked[Q], timeout_s: float) -> dict[TopicPartition, Answer[A]]:
    try:
        told = await ask(node, asked, timeout_s)
    except RetryLater:
        return {tp: Answer(codes.NETWORK_EXCEPTION) for tp in asked}
    return {tp: told.get(tp, Answer(codes.UNKNOWN_SERVER_ERROR)) for tp in asked}
