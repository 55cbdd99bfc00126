"""`__mirror_state` on real brokers: what is committed is read once, two writers never mix, and nothing is guessed."""

import asyncio
import json
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from twinlog.config.client import ClientSettings
from twinlog.control.codec import encode
from twinlog.control.commands import Create, Created, Handled
from twinlog.control.handle import create
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import (
    NO_TOPIC_ID,
    Change,
    Figure,
    MirrorRecord,
    PartitionRecord,
    ProgressRecord,
    Record,
    ShardRecord,
    Tombstone,
    TopicRecord,
    WorkerRecord,
)
from twinlog.control.sharding import partition_of
from twinlog.errors import (
    BadInput,
    ClusterMirrorAlreadyExists,
    ConcurrentChange,
    ConnectionLost,
    GiveWay,
    TwinlogError,
    UnknownOutcome,
)
from twinlog.names import TopicPartition as Tp
from twinlog.state import transact as transact_module
from twinlog.state import writer as writer_module
from twinlog.state.batches import by_shard, transactional
from twinlog.state.log import StateLog
from twinlog.state.topic import STATE_TOPIC
from twinlog.state.transact import transact
from twinlog.state.writer import StateWriter
from twinlog.testing.kafka import LocalKafka
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import add_partitions, alter_configs, describe_configs, produce_batch

SHARDS = 50
WORKS_S = 30.0


@pytest.fixture(scope="module")
def own() -> Iterator[LocalKafka]:
    """A broker of this file's own, behind a proxy: its state topic is nobody else's, and it may be restarted."""
    with LocalKafka(proxied=True) as kafka:
        yield kafka


@asynccontextmanager
async def connected(bootstrap: str) -> AsyncIterator[Cluster]:
    """A client of a cluster."""
    settings = ClientSettings.from_properties({}, bootstrap=bootstrap, origin="test")
    cluster = await Cluster.connect(settings, client_id="test")
    try:
        yield cluster
    finally:
        await cluster.close()


@pytest.fixture
async def cluster(own: LocalKafka) -> AsyncIterator[Cluster]:
    """A client that talks past the proxy."""
    async with connected(own.bootstrap) as client:
        yield client


@pytest.fixture
async def log(cluster: Cluster) -> StateLog:
    """The state topic, created by whichever test comes first."""
    return await StateLog.open(cluster, create=True)


@pytest.fixture
def name() -> str:
    """A mirror or transactional id that no other test has."""
    return f"m-{uuid.uuid4().hex[:12]}"


async def fenced(cluster: Cluster, log: StateLog, name: str, **options: Any) -> StateWriter:
    """A writer ready to commit."""
    writer = StateWriter(cluster, log, name, **options)
    await writer.fence()
    return writer


def mirror(name: str, **configs: str) -> MirrorRecord:
    """A mirror's record."""
    return MirrorRecord(name, configs, "")


async def eventually(condition: Callable[[], Awaitable[bool]], *, timeout_s: float = 60.0) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110  # a broker sends no event
            await asyncio.sleep(0.02)


def one_of_each(name: str) -> list[Record]:
    """A record of every type, all under one name."""
    figure = Figure(name, "t", 3, 0, 9, 8, 0, 7, waiting_for_transaction=True)
    return [
        mirror(name, **{"bootstrap.servers": "ü:1"}),
        TopicRecord(name, "t", DesiredState.PAUSED, uuid.uuid4(), NO_TOPIC_ID, 4),
        PartitionRecord(name, "t", 3, PartitionState.FAILED, error='It said "no".', retry_attempt=2),
        ShardRecord(7, name),
        WorkerRecord(name, "host", 1, 2, 3),
        ProgressRecord(8, name, 5, (figure,)),
    ]


def creating(name: str) -> Callable[[Image], Handled[Created]]:
    """The command that creates a mirror."""
    return lambda image: create(image, Create(name, {"bootstrap.servers": "a:1"}, "S", "D"))


async def test_open_creates_a_compacted_topic_once(destination3: LocalKafka) -> None:
    """Two processes that open the state at once both find 50 compacted partitions, three times replicated."""
    async with connected(destination3.bootstrap) as one, connected(destination3.bootstrap) as two:
        logs = await asyncio.gather(StateLog.open(one, create=True), StateLog.open(two, create=True))
        assert [log.shards for log in logs] == [SHARDS, SHARDS]
        info = (await one.topics([STATE_TOPIC]))[STATE_TOPIC]
        assert {len(part.replicas) for part in info.partitions.values()} == {3}
        configs = (await describe_configs(one, "topic", [STATE_TOPIC]))[STATE_TOPIC]
        assert configs["cleanup.policy"].value == "compact"


async def test_a_missing_topic_is_an_empty_image(without_mirrors: LocalKafka) -> None:
    """Looking creates nothing: without the topic there are no shards, and the image is empty."""
    async with connected(without_mirrors.bootstrap) as cluster:
        log = await StateLog.open(cluster, create=False)
        assert log.shards == 0
        assert (await log.load()).mirrors == {}
        assert (await cluster.topics([STATE_TOPIC]))[STATE_TOPIC].error != 0


async def test_a_topic_that_would_lose_records_is_refused(cluster: Cluster, log: StateLog) -> None:
    """A state topic whose cleanup.policy deletes is refused, saying what to set."""
    del log
    await _set_policy(cluster, "compact,delete")
    try:
        with pytest.raises(BadInput, match=r"Set cleanup\.policy=compact"):
            await StateLog.open(cluster, create=True)
    finally:
        await _set_policy(cluster, "compact")


async def _set_policy(cluster: Cluster, policy: str) -> None:
    await alter_configs(cluster, "topic", STATE_TOPIC, set_to={"cleanup.policy": policy})

    async def is_set() -> bool:
        configs = await describe_configs(cluster, "topic", [STATE_TOPIC])
        return configs[STATE_TOPIC]["cleanup.policy"].value == policy

    await eventually(is_set)


async def test_what_is_committed_is_loaded(cluster: Cluster, log: StateLog, name: str) -> None:
    """Every type of record comes back equal, and is gone after its tombstone."""
    writer = await fenced(cluster, log, name)
    records = one_of_each(name)
    await writer.commit(records)
    image = await log.load()
    assert all(image.holds(record) for record in records)
    await writer.commit([Tombstone(record.key) for record in records])
    image = await log.load()
    assert not any(image.find(record.key) for record in records)


async def test_replicated_state(destination3: LocalKafka, name: str) -> None:
    """Three brokers, each leading some shards: commits over many shards are read back whole."""
    async with connected(destination3.bootstrap) as cluster:
        log = await StateLog.open(cluster, create=True)
        writer = await fenced(cluster, log, name)
        records = [PartitionRecord(name, "t", n, PartitionState.MIRRORING) for n in range(200)]
        await writer.commit(records)
        image = await log.load()
        assert image.partitions_of(name, "t") == records


async def test_a_thousand_records_in_one_commit(cluster: Cluster, log: StateLog, name: str) -> None:
    """A commit of 1,000 records over all shards stands as a whole, and a small state is loaded in a moment."""
    writer = await fenced(cluster, log, name)
    records = [PartitionRecord(name, "t", n, PartitionState.MIRRORING, error="x" * 900) for n in range(1000)]
    await writer.commit(records)
    began = time.monotonic()
    image = await log.load()
    took_s = time.monotonic() - began
    print(f"loaded in {took_s:.3f} s")
    assert image.partitions_of(name, "t") == records
    assert took_s < 2.0  # 0.1 s on an idle machine
    await writer.commit([Tombstone(record.key) for record in records])


async def test_a_commit_larger_than_a_batch(cluster: Cluster, log: StateLog, name: str) -> None:
    """More than a batch may hold, all for one shard, is written as several batches of one transaction, in order."""
    writer = await fenced(cluster, log, name)
    noise = random.Random(1)
    records = [mirror(name, note=noise.randbytes(100_000).hex()) for _ in range(12)]
    await writer.commit(records)
    await writer.commit([mirror(name + "-2")])
    image = await log.load()
    assert image.mirrors[name] == records[-1]
    assert name + "-2" in image.mirrors


async def test_a_record_too_large_is_refused(cluster: Cluster, log: StateLog, name: str) -> None:
    """A record that no broker takes is refused with the config's name, and the writer goes on after it."""
    writer = await fenced(cluster, log, name)
    with pytest.raises(BadInput, match=r"max\.message\.bytes"):
        await writer.commit([mirror(name), mirror(name, note=random.Random(1).randbytes(1_500_000).hex())])
    with pytest.raises(UnknownOutcome):
        await writer.commit([mirror(name)])
    await writer.reestablish()
    assert name not in (await log.load()).mirrors
    await writer.commit([mirror(name)])
    assert name in (await log.load()).mirrors


async def test_anyone_can_read_the_records(own: LocalKafka, cluster: Cluster, log: StateLog, name: str) -> None:
    """An ordinary read_committed consumer finds JSON keys and values, each in its shard."""
    records = one_of_each(name)
    await (await fenced(cluster, log, name)).commit(records)
    found = await asyncio.to_thread(_consumed, own.bootstrap, log.shards)
    for record in records:
        key, value = encode(record)
        assert found[partition_of(record, log.shards), key] == json.loads(value or b"")


def _consumed(bootstrap: str, shards: int) -> dict[tuple[int, bytes], Any]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "enable.partition.eof": True})
    consumer.assign([TopicPartition(STATE_TOPIC, shard, 0) for shard in range(shards)])
    found: dict[tuple[int, bytes], Any] = {}
    ends: set[int] = set()
    while len(ends) < shards:
        message = consumer.poll(WORKS_S)
        assert message is not None
        partition, key, value = message.partition(), message.key(), message.value()
        assert partition is not None
        if message.error():
            ends.add(partition)
        elif key is not None:
            json.loads(key)
            found[partition, key] = None if value is None else json.loads(value)
    consumer.close()
    return found


async def test_an_aborted_transaction_is_not_read(cluster: Cluster, log: StateLog, name: str) -> None:
    """What a writer that died had written is not in the image, and holds up no reader once it is fenced."""
    writer = await fenced(cluster, log, name)
    await _leave_open(cluster, log, writer, [mirror(name)])
    await fenced(cluster, log, name)
    assert name not in (await log.load()).mirrors


async def test_a_load_waits_for_an_open_transaction(cluster: Cluster, log: StateLog, name: str) -> None:
    """What was committed behind another writer's open transaction is waited for, never overlooked."""
    dead = await fenced(cluster, log, f"{name}-dead")
    record = mirror(name)
    await _leave_open(cluster, log, dead, [replaced_shard(record, log.shards)])
    await (await fenced(cluster, log, name)).commit([record])
    loading = asyncio.create_task(log.load())
    await asyncio.sleep(0.5)
    assert not loading.done()
    await dead.fence()
    assert (await loading).mirrors[name] == record


def replaced_shard(record: Record, shards: int) -> MirrorRecord:
    """Another mirror that lies in the same shard."""
    names = (f"other-{n}" for n in range(100_000))
    wanted = partition_of(record, shards)
    return next(made for other in names if partition_of(made := mirror(other), shards) == wanted)


async def _leave_open(cluster: Cluster, log: StateLog, writer: StateWriter, changes: Sequence[Change]) -> None:
    """Write as the writer would, without ending the transaction."""
    producer = writer._producer
    assert producer is not None
    for shard, runs in by_shard(changes, log.shards, timestamp_ms=time.time_ns() // 1_000_000).items():
        tp = Tp(STATE_TOPIC, shard)
        await add_partitions(cluster, writer.transactional_id, producer, [tp])
        batch = transactional(runs[0], producer_id=producer.id, epoch=producer.epoch, sequence=0)
        answer = await produce_batch(cluster, tp, batch, transactional_id=writer.transactional_id)
        assert answer.error == 0


async def test_a_fenced_writer_writes_nothing_more(cluster: Cluster, log: StateLog, name: str) -> None:
    """A writer whose transactional id was taken gets GiveWay, for its commit and when it asks to go on."""
    old = await fenced(cluster, log, name)
    await old.commit([mirror(name, by="old")])
    new = await fenced(cluster, log, name)
    with pytest.raises(GiveWay):
        await old.commit([mirror(name, by="late")])
    with pytest.raises(GiveWay):
        await old.reestablish()
    await new.commit([mirror(f"{name}-new")])
    image = await log.load()
    assert image.mirrors[name].configs == {"by": "old"}
    assert f"{name}-new" in image.mirrors


async def test_an_owner_goes_on_under_its_own_epoch(cluster: Cluster, log: StateLog, name: str) -> None:
    """Re-establishing raises the own epoch and lets the same writer commit again."""
    writer = await fenced(cluster, log, name)
    before = await writer.reestablish()
    after = await writer.reestablish()
    assert (after.id, after.epoch) == (before.id, before.epoch + 1)
    await writer.commit([mirror(name)])
    assert name in (await log.load()).mirrors


async def test_the_lease_counts_from_the_beginning(cluster: Cluster, log: StateLog, name: str) -> None:
    """A commit tells when its first attempt began, on the clock that was given."""
    ticks = iter(range(100))
    writer = await fenced(cluster, log, name, clock=lambda: float(next(ticks)))
    assert (await writer.commit([mirror(name)])).first_attempt_began == 0.0
    assert (await writer.commit([mirror(name)])).first_attempt_began == 1.0


async def test_concurrent_commits_of_one_writer_take_turns(cluster: Cluster, log: StateLog, name: str) -> None:
    """Many tasks may commit through one writer; all of it stands."""
    writer = await fenced(cluster, log, name)
    await asyncio.gather(*(writer.commit([mirror(f"{name}-{n}")]) for n in range(10)))
    image = await log.load()
    assert all(f"{name}-{n}" in image.mirrors for n in range(10))


@pytest.mark.parametrize("stands", [True, False])
async def test_a_lost_answer_is_settled(
    cluster: Cluster, log: StateLog, name: str, monkeypatch: pytest.MonkeyPatch, *, stands: bool
) -> None:
    """When the commit's answer is lost, the outcome is unknown until the writer has re-established itself."""
    writer = await fenced(cluster, log, name)
    lose_answers(monkeypatch, [stands])
    with pytest.raises(UnknownOutcome):
        await writer.commit([mirror(name)])
    assert not writer.settled
    await writer.reestablish()
    assert (name in (await log.load()).mirrors) is stands


def lose_answers(monkeypatch: pytest.MonkeyPatch, stands: list[bool]) -> None:
    """Make the next commits lose their answers, each after (True) or before (False) it took effect."""
    original = writer_module.end_txn

    async def end(*args: Any, **kwargs: Any) -> None:
        if not stands or stands[0]:
            await original(*args, **kwargs)
        if stands:
            stands.pop(0)
            raise ConnectionLost("The answer was lost.")

    monkeypatch.setattr(writer_module, "end_txn", end)


@pytest.mark.parametrize("lost", [[True], [False], [False, False], [False, True]])
async def test_a_command_survives_lost_answers(
    cluster: Cluster, log: StateLog, name: str, monkeypatch: pytest.MonkeyPatch, lost: list[bool]
) -> None:
    """A command whose answer is lost is neither repeated after it took effect nor forgotten when it did not."""
    lose_answers(monkeypatch, list(lost))
    assert await transact(cluster, log, creating(name)) == Created(name)
    assert name in (await log.load()).mirrors


async def test_a_command_gives_up_honestly(
    cluster: Cluster, log: StateLog, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After several lost answers the command ends, saying that it was not carried out; and it was not."""
    lose_answers(monkeypatch, [False] * transact_module.MOST_TRIES)
    with pytest.raises(UnknownOutcome, match="not carried out"):
        await transact(cluster, log, creating(name))
    assert name not in (await log.load()).mirrors


async def test_a_command_that_is_refused_changes_nothing(cluster: Cluster, log: StateLog, name: str) -> None:
    """The second create of one name is refused with the KIP's sentence."""
    await transact(cluster, log, creating(name))
    with pytest.raises(ClusterMirrorAlreadyExists, match=f"^Mirror '{name}' already exists$"):
        await transact(cluster, log, creating(name))


@pytest.mark.parametrize("delay_ms", [0, 2, 5, 10, 20, 40])
async def test_two_commands_at_once_are_never_mixed(own: LocalKafka, log: StateLog, name: str, delay_ms: int) -> None:
    """Of two creates of one mirror at most one stands, and the other is told so in a sentence."""

    async def attempt(value: str, delay_s: float) -> object:
        def handler(image: Image) -> Handled[str]:
            configs = {"bootstrap.servers": f"{value}:1"}
            return Handled(create(image, Create(name, configs, "S", "D")).records, value)

        await asyncio.sleep(delay_s)
        async with connected(own.bootstrap) as client:
            return await transact(client, await StateLog.open(client, create=True), handler)

    outcomes = await asyncio.gather(attempt("a", 0), attempt("b", delay_ms / 1000), return_exceptions=True)
    winners = [outcome for outcome in outcomes if isinstance(outcome, str)]
    others = [outcome for outcome in outcomes if not isinstance(outcome, str)]
    assert len(winners) == 1, outcomes
    assert isinstance(others[0], ConcurrentChange | ClusterMirrorAlreadyExists)
    record = (await log.load()).mirrors[name]
    assert record.configs == {"bootstrap.servers": f"{winners[0]}:1"}


async def test_the_later_of_two_commands_wins_or_both_stand(own: LocalKafka, log: StateLog, name: str) -> None:
    """Of many commands at once, those that report success stand, and the others left nothing."""

    async def attempt(number: int) -> Created:
        async with connected(own.bootstrap) as client:
            return await transact(client, await StateLog.open(client, create=True), creating(f"{name}-{number}"))

    outcomes = await asyncio.gather(*(attempt(n) for n in range(5)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} <= {Created, ConcurrentChange}
    stands = {mirror for mirror in (await log.load()).mirrors if mirror.startswith(name)}
    assert stands == {outcome.mirror for outcome in outcomes if isinstance(outcome, Created)}
    assert stands


async def test_commands_through_a_cut_network(own: LocalKafka, cluster: Cluster, log: StateLog, name: str) -> None:
    """Whatever request loses its answer, a success stands, and an orderly refusal left nothing."""
    seed = random.Random(7)
    for number in range(6):
        wanted = f"{name}-{number}"
        async with connected(own.proxy.bootstrap) as client:
            proxied = await StateLog.open(client, create=True)
            own.proxy[1].cut(after_bytes=seed.randrange(20_000))
            try:
                outcome: object = await transact(client, proxied, creating(wanted))
            except TwinlogError as error:
                outcome = error
            finally:
                own.proxy.resume()
        await transact(cluster, log, lambda _: Handled((), None))  # fences, so that nothing is under way any more
        stands = wanted in (await log.load()).mirrors
        assert stands or not isinstance(outcome, Created)
        assert not stands or isinstance(outcome, Created | UnknownOutcome | ClusterMirrorAlreadyExists), outcome
