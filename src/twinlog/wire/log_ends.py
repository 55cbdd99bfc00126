"""The true ends of very many logs, asked for again and again at little cost.

What `list_offsets` asks for with replica id -2, made for a thousand partitions each second: the request is the same
bytes as long as no leader changes, and the answer is read without an object for each partition, and not at all where
it is that of the last time. Done by hand for versions 4 and 5 (Kafka 2.1 and later), in which each part has a fixed
size.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import groupby
from struct import Struct
from typing import Final, TypeAlias

from kafka.protocol.consumer import ListOffsetsRequest

from twinlog.errors import RetryLater, UnsupportedVersion
from twinlog.names import TopicPartition
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster
from twinlog.wire.connection import Connection
from twinlog.wire.ops_log import CONSUMER, DEBUGGER, LATEST

LIST_OFFSETS: Final = 2
# 4 brought the leader's epoch, 6 fields of varying size.
WITH_EPOCHS, NEWEST_FIXED = 4, 5

_HEAD: Final = Struct(">ibi")  # replica id, isolation level, topics
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_ASKED: Final = Struct(">iiq")  # partition, leader's epoch, timestamp
_TOLD: Final = Struct(">ihqqi")  # partition, error, timestamp, offset, leader's epoch

Ends: TypeAlias = dict[tuple[str, int], tuple[int, int]]
"""(Topic, partition) to (error, log end); a `TopicPartition` finds its own."""

_Asked: TypeAlias = Sequence[tuple[TopicPartition, int]]


def encode_log_ends(asked: Iterable[tuple[TopicPartition, int]], at: int = LATEST) -> bytes:
    """A ListOffsets request of version 4 or 5; `asked` are partitions and leader's epochs, `at` as in `LogEnds`."""
    topics = [(name, list(parts)) for name, parts in groupby(sorted(asked), key=lambda item: item[0].topic)]
    out = [_HEAD.pack(DEBUGGER if at == LATEST else CONSUMER, 0, len(topics))]
    for name, parts in topics:
        encoded = name.encode()
        out += (_INT16.pack(len(encoded)), encoded, _INT32.pack(len(parts)))
        out += [_ASKED.pack(where.partition, epoch, at) for where, epoch in parts]
    return b"".join(out)


def decode_log_ends(body: memoryview) -> Ends:
    """Read the answer; ValueError or struct.error where it is none."""
    ends: Ends = {}
    (topics,), at = _INT32.unpack_from(body, 4), 8  # behind the throttle time
    for _ in range(topics):
        size = _INT16.unpack_from(body, at)[0]
        name = bytes(body[at + 2 : at + 2 + size]).decode()
        at += 2 + size
        end = at + 4 + _INT32.unpack_from(body, at)[0] * _TOLD.size
        told = body[at + 4 : end]
        ends |= {(name, part): (error, offset) for part, error, _, offset, _ in _TOLD.iter_unpack(told)}
        at = end
    if at != len(body):
        raise ValueError(f"its fields take {at} bytes, not {len(body)}")
    return ends


class LogEnds:
    """Asks the leaders of many partitions for the true ends of their logs, on a lane of its own.

    With `at` EARLIEST it asks for where they start.
    """

    def __init__(self, cluster: Cluster, *, lane: str, at: int = LATEST) -> None:
        self._cluster = cluster
        self._lane = lane
        self._at = at
        self._bodies: dict[int, tuple[_Asked, bytes]] = {}
        self._answers: dict[int, tuple[bytes | None, Ends]] = {}

    def __repr__(self) -> str:
        return f"LogEnds({self._cluster}, {len(self._bodies)} brokers)"

    async def ask(self, wheres: Collection[TopicPartition], *, timeout_s: float) -> Ends:
        """Error and end of each partition whose leader answers within `timeout_s`; the others are left out.

        Asks once. A leader that is unknown, or says that it leads no longer, is looked for at the next call. Raises
        what `Cluster.topics` does.
        """
        by_node: dict[int, list[tuple[TopicPartition, int]]] = {}
        lacking = self._group(wheres, by_node)
        ends: Ends = {}
        if lacking:
            ends = await self._learn_leaders(lacking, timeout_s)
            self._group(lacking, by_node)
        for node in self._bodies.keys() - by_node.keys():
            del self._bodies[node]
            self._answers.pop(node, None)
        for told in await asyncio.gather(*(self._ask(node, asked, timeout_s) for node, asked in by_node.items())):
            ends |= told
        for topic in {topic for (topic, _), (error, _) in ends.items() if error and error in codes.REFRESH}:
            self._cluster.distrust(topic)
        return ends

    def _group(
        self, wheres: Collection[TopicPartition], by_node: dict[int, list[tuple[TopicPartition, int]]]
    ) -> list[TopicPartition]:
        """Add each partition to its leader's; returns those whose leader is not known."""
        lacking = []
        for where in wheres:
            leader = self._cluster.leader(where)
            if leader is None:
                lacking.append(where)
            else:
                by_node.setdefault(leader.node, []).append((where, leader.epoch))
        return lacking

    async def _learn_leaders(self, lacking: Collection[TopicPartition], timeout_s: float) -> Ends:
        """Look for leaders; returns the partitions of topics that the cluster does not know."""
        told = await self._cluster.topics({where.topic for where in lacking}, timeout_s=timeout_s)
        unknown = codes.UNKNOWN_TOPIC_OR_PARTITION
        return {where: (unknown, -1) for where in lacking if where.topic in told and told[where.topic].error == unknown}

    async def _ask(self, node: int, asked: _Asked, timeout_s: float) -> Ends:
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._cluster.lane(node, self._lane)
        except (TimeoutError, RetryLater):
            return {}
        try:
            async with asyncio.timeout(timeout_s):
                return await self._send(connection, node, asked)
        except TimeoutError:
            connection.reset()
        except RetryLater:
            pass
        return {}

    def _send(self, connection: Connection, node: int, asked: _Asked) -> "asyncio.Future[Ends]":
        version = connection.version_of(ListOffsetsRequest, NEWEST_FIXED)
        if version < WITH_EPOCHS:
            raise UnsupportedVersion(
                f"{connection.peer} answers ListOffsets up to version {version}, version {WITH_EPOCHS} is needed. Use "
                f"brokers of Kafka 2.1 or later."
            )
        known, body = self._bodies.get(node, ((), b""))
        if known != asked:
            body = encode_log_ends(asked, self._at)
            self._bodies[node] = (asked, body)
        return connection.submit_frame(LIST_OFFSETS, version, (body,), partial(self._read, node))

    def _read(self, node: int, body: memoryview) -> Ends:
        """Decode an answer, or return the last one's ends where it is the same bytes; nobody may change them."""
        answer = bytes(body)
        before, ends = self._answers.get(node, (None, {}))
        if answer != before:
            ends = decode_log_ends(body)
            self._answers[node] = (answer, ends)
        return ends
