"""In which order batches leave, and when the second one may."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.batch.records import Record, encode
from twinlog.names import TopicPartition
from twinlog.reo.sender import Mark, NotSent, Sender
from twinlog.wire import codes
from twinlog.wire.ops import Producer
from twinlog.wire.produce import ProduceAnswer, Produced

WHERE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
BATCH = encode([Record(0, 1, b"k", b"v"), Record(1, 1, None, b"w")], codec=0)


class Broker:
    """One connection: every request waits until a test answers it."""

    closed = False

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[ProduceAnswer]] = []

    def version_of(self, *_: object) -> int:
        """Any will do."""
        return 9

    def submit_frame(self, *_: object) -> "asyncio.Future[ProduceAnswer]":
        """Take a request."""
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self.waiting[-1]

    def reset(self) -> None:
        """Nothing takes so long here."""
        raise AssertionError

    async def answer(self, at: int, where: TopicPartition, code: int = 0, *, throttle_ms: int = 0) -> None:
        """Answer one of the requests."""
        told = {(where.topic, where.partition): Produced(code, 0, "")}
        self.waiting[at].set_result(ProduceAnswer(told, throttle_ms))
        await asyncio.sleep(0)


def sender_of(broker: Broker, transactional_id: str | None) -> Sender:
    """A sender whose only broker is `broker`."""

    async def find_leader(_: TopicPartition) -> Any:
        return SimpleNamespace(node=1)

    async def lane(*_: object) -> Any:
        return broker

    cluster: Any = SimpleNamespace(find_leader=find_leader, lane=lane, distrust=lambda _: None)
    return Sender(cluster, transactional_id, Producer(7, 0), timeout_s=5)


async def put(sender: Sender, where: TopicPartition, offset: int) -> None:
    """Put the same batch as one of that offset."""
    await sender.put(where, BATCH, source=where, mark=Mark(offset, offset))


@pytest.mark.parametrize(("transactional_id", "at_once"), [(None, 1), ("id", 3)])
async def test_without_a_transaction_the_first_batch_of_a_partition_goes_alone(
    transactional_id: str | None, at_once: int
) -> None:
    """A broker that lost the first one would take the second for the first; behind it they are pipelined."""
    broker = Broker()
    sender = sender_of(broker, transactional_id)
    for offset in range(3):
        await put(sender, WHERE, offset)
    assert len(broker.waiting) == at_once
    await broker.answer(0, WHERE)
    assert len(broker.waiting) == 3
    await put(sender, OTHER, 0)
    assert len(broker.waiting) == 4


async def test_a_refusal_says_what_was_refused_and_stops_what_follows() -> None:
    """The first reason is kept."""
    broker = Broker()
    sender = sender_of(broker, None)
    for offset in range(3):
        await put(sender, WHERE, offset)
    await broker.answer(0, WHERE, codes.MESSAGE_TOO_LARGE)
    assert len(broker.waiting) == 1
    with pytest.raises(NotSent) as stopped:
        await sender.flush()
    refusal = stopped.value.refusal
    assert refusal is not None
    assert (refusal.source, refusal.mark, refusal.units) == (WHERE, Mark(0, 0), 2)
    with pytest.raises(NotSent):
        await put(sender, OTHER, 0)


async def test_nothing_is_sent_while_the_broker_throttles() -> None:
    """It would not be read before that is over; then what was put meanwhile goes by itself."""
    broker = Broker()
    sender = sender_of(broker, "id")
    await put(sender, WHERE, 0)
    await broker.answer(0, WHERE, throttle_ms=200)
    began = asyncio.get_running_loop().time()
    await put(sender, WHERE, 1)
    assert len(broker.waiting) == 1
    while len(broker.waiting) == 1:
        assert asyncio.get_running_loop().time() - began < 5.0
        await asyncio.sleep(0.01)
    assert asyncio.get_running_loop().time() - began >= 0.15
    await broker.answer(1, WHERE)
    await sender.flush()
