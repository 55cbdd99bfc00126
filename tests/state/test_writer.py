"""The outcomes of a commit, by what the cluster answers; the real cluster's answers are in `real/test_state.py`."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from twinlog.batch.scan import batches
from twinlog.batch.view import Batch
from twinlog.control.records import Change, MirrorRecord, ShardRecord
from twinlog.errors import (
    AuthorizationFailed,
    BadInput,
    BrokerError,
    ConnectionLost,
    GiveWay,
    PartitionFailed,
    ProtocolViolation,
    RefreshLeader,
    RetryLater,
    TwinlogError,
    UnknownOutcome,
)
from twinlog.names import TopicPartition
from twinlog.state import writer as module
from twinlog.state.log import StateLog
from twinlog.state.writer import StateWriter
from twinlog.wire.cluster import Cluster
from twinlog.wire.leaders import Answer
from twinlog.wire.ops import Producer


class FakeCluster:
    """Stands in for the operations that the writer calls; `calls` is what it asked for, in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails: dict[str, TwinlogError] = {}
        self.produce_codes: list[int] = []
        self.sequences: list[tuple[int, int, int]] = []
        self.producer = Producer(7, 0)

    async def init_producer_id(self, _: Any, transactional_id: str, **options: Any) -> Producer:
        """Grant the next epoch."""
        self._called("init" if options["producer"] is None else f"init {options['producer'].epoch}")
        assert transactional_id == "id"
        self.producer = Producer(7, self.producer.epoch + 1)
        return self.producer

    async def add_partitions(self, *args: Any, **_: Any) -> None:
        """Take partitions into the transaction."""
        self._called(f"add {len(args[3])}")

    async def end_txn(self, *_: Any, commit: bool, **__: Any) -> None:
        """End the transaction."""
        assert commit
        self._called("end")

    async def ask_leaders(self, _: Any, asked: Mapping[TopicPartition, bytes], *__: Any, **___: Any) -> Any:
        """Append batches, or refuse them with the next code."""
        self._called("produce")
        code = self.produce_codes.pop(0) if self.produce_codes else 0
        for tp, data in asked.items():
            (batch,) = batches(memoryview(data))
            assert isinstance(batch, Batch)
            self.sequences.append((tp.partition, batch.producer_epoch, batch.base_sequence))
        return {tp: Answer(code, 0) for tp in asked}

    def _called(self, call: str) -> None:
        self.calls.append(call)
        failure = self.fails.get(call.split(maxsplit=1)[0])
        if failure is not None:
            raise failure


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A cluster that grants everything until told otherwise."""
    fake = FakeCluster()
    for name in ("init_producer_id", "add_partitions", "end_txn", "ask_leaders"):
        monkeypatch.setattr(module, name, getattr(fake, name))
    return fake


@pytest.fixture
def writer() -> StateWriter:
    """A writer that has not fenced yet."""
    cluster = cast("Cluster", "cluster")
    return StateWriter(cluster, StateLog(cluster, 50), "id", commit_timeout_s=0.6, wall_ms=lambda: 5, clock=lambda: 9.0)


CHANGES: list[Change] = [ShardRecord(1, "w"), ShardRecord(2, "w")]


async def test_a_commit_is_one_transaction(fake: FakeCluster, writer: StateWriter) -> None:
    """Partitions are added, one request writes to all shards, the end commits; sequences go on in the next commit."""
    await writer.fence()
    assert (await writer.commit(CHANGES)).first_attempt_began == 9.0
    await writer.commit([ShardRecord(1, "v")])
    assert fake.calls == ["init", "add 2", "produce", "end", "add 1", "produce", "end"]
    assert fake.sequences == [(1, 1, 0), (2, 1, 0), (1, 1, 1)]
    assert writer.settled


async def test_an_empty_commit_asks_for_nothing(fake: FakeCluster, writer: StateWriter) -> None:
    """Nothing to write is no transaction."""
    await writer.fence()
    await writer.commit([])
    assert fake.calls == ["init"]


async def test_large_commits_take_turns(fake: FakeCluster, writer: StateWriter) -> None:
    """What does not fit one batch a shard follows in the next request of the same transaction."""
    await writer.fence()
    await writer.commit([MirrorRecord("m", {"x": "y" * 300_000}, "") for _ in range(3)])
    assert fake.calls == ["init", "add 1", "produce", "produce", "produce", "end"]
    assert [sequence for _, _, sequence in fake.sequences] == [0, 1, 2]


async def test_a_writer_that_never_fenced_commits_nothing(fake: FakeCluster, writer: StateWriter) -> None:
    """Fencing comes first; without it there is nothing to re-establish either."""
    with pytest.raises(UnknownOutcome):
        await writer.commit(CHANGES)
    with pytest.raises(GiveWay):
        await writer.reestablish()
    assert fake.calls == []


FENCED = BrokerError("x", code=49, name="INVALID_PRODUCER_ID_MAPPING")
BUSY = BrokerError("x", code=51, name="CONCURRENT_TRANSACTIONS")


@pytest.mark.parametrize(
    ("step", "failure", "expected"),
    [
        ("add", GiveWay("x"), GiveWay),
        ("add", FENCED, GiveWay),
        ("add", PartitionFailed("x"), GiveWay),
        ("add", BUSY, BrokerError),
        ("add", ConnectionLost("x"), ConnectionLost),
        ("add", AuthorizationFailed("x"), AuthorizationFailed),
        ("produce", ConnectionLost("x"), ConnectionLost),
        ("end", GiveWay("x"), GiveWay),
        ("end", FENCED, GiveWay),
        ("end", PartitionFailed("x"), GiveWay),
        ("end", AuthorizationFailed("x"), AuthorizationFailed),
        ("end", ConnectionLost("x"), UnknownOutcome),
        ("end", BUSY, UnknownOutcome),
        ("end", RefreshLeader("x"), UnknownOutcome),
        ("end", ProtocolViolation("x"), UnknownOutcome),
    ],
)
async def test_outcomes(
    fake: FakeCluster, writer: StateWriter, step: str, failure: TwinlogError, expected: type[TwinlogError]
) -> None:
    """A failure before the end was asked for is what it is, one at the end is unknown unless it is an answer."""
    await writer.fence()
    fake.fails[step] = failure
    with pytest.raises(expected) as raised:
        await writer.commit(CHANGES)
    assert type(raised.value) is expected
    assert not writer.settled
    assert "unsettled" in repr(writer)


async def test_nothing_is_sent_until_the_writer_is_settled(fake: FakeCluster, writer: StateWriter) -> None:
    """After a failure the next commit is refused unsent; re-establishing starts a new epoch with sequence 0."""
    await writer.fence()
    await writer.commit(CHANGES)
    fake.fails["end"] = ConnectionLost("x")
    with pytest.raises(UnknownOutcome):
        await writer.commit(CHANGES)
    before = list(fake.calls)
    with pytest.raises(UnknownOutcome, match="re-established"):
        await writer.commit(CHANGES)
    assert fake.calls == before
    fake.fails.clear()
    assert await writer.reestablish() == Producer(7, 2)
    await writer.commit(CHANGES)
    assert fake.calls[len(before) :] == ["init 1", "add 2", "produce", "end"]
    assert fake.sequences[-2:] == [(1, 2, 0), (2, 2, 0)]


async def test_a_cancelled_commit_leaves_the_writer_unsettled(
    fake: FakeCluster, writer: StateWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that was cancelled may be half done; nothing follows it under its epoch."""
    await writer.fence()

    async def never(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "end_txn", never)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await writer.commit(CHANGES)
    assert not writer.settled
    assert fake.calls == ["init", "add 2", "produce"]


async def test_reestablishing_tells_that_it_was_fenced(fake: FakeCluster, writer: StateWriter) -> None:
    """Whatever form the refusal has; a failed attempt leaves the writer unsettled."""
    await writer.fence()
    for failure, expected in ((GiveWay("x"), GiveWay), (FENCED, GiveWay), (BUSY, BrokerError)):
        fake.fails["init"] = failure
        with pytest.raises(expected):
            await writer.reestablish()
        assert not writer.settled


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([46], None),
        ([6, 19, 0], None),
        ([47], GiveWay),
        ([90], GiveWay),
        ([48], GiveWay),
        ([49], GiveWay),
        ([10], BadInput),
        ([18], BadInput),
        ([45], RetryLater),
        ([29], AuthorizationFailed),
        ([6] * 50, RetryLater),
    ],
)
async def test_codes_of_the_write(
    fake: FakeCluster, writer: StateWriter, codes: list[int], expected: type[TwinlogError] | None
) -> None:
    """A duplicate stands, what passes is sent again within the bound, the rest ends the commit by kind."""
    await writer.fence()
    fake.produce_codes = codes
    if expected is None:
        await writer.commit(CHANGES)
        assert writer.settled
        assert {sequence for _, _, sequence in fake.sequences} == {0}
        return
    with pytest.raises(expected):
        await writer.commit(CHANGES)
    assert not writer.settled
    assert "end" not in fake.calls
