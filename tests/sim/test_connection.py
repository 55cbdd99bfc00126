"""The simulated network: order, breaks, stalls, and what arrives late."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from tests.sim.broker.settings import Span
from tests.sim.clocks import WALL_S, simulated
from tests.sim.cluster import SimCluster
from tests.sim.connection import SimConnection, SimNetwork
from tests.sim.loop import FIRST_S, PROCESS, Process, SimLoop, sleeping

from twinlog.batch import layout
from twinlog.batch.blank import filler_batch
from twinlog.config.client import ClientSettings
from twinlog.errors import ConnectionLost, Unreachable
from twinlog.names import TopicPartition
from twinlog.wire import ops
from twinlog.wire.connection import Connection
from twinlog.wire.produce import PRODUCE, PartitionBatch, Produced, decode_produced, encode_produce

WHERE = TopicPartition("t", 0)
VERSION = 11
NOW_MS = int((WALL_S + FIRST_S) * 1000)
Answer = asyncio.Future[dict[tuple[str, int], Produced]]


class Stage:
    """One broker, one client process with one connection."""

    def __init__(self, seed: int) -> None:
        self.loop = SimLoop()
        self.network = SimNetwork(self.loop, Random(f"network {seed}"))
        self.cluster = SimCluster("c", loop=self.loop, rng=Random(f"cluster {seed}"), network=self.network)
        self.cluster.create_topic("t")
        self.process = Process("client")

    @property
    def end(self) -> int:
        """The log's end."""
        return self.cluster.leader_log(WHERE).end

    async def open(self) -> Connection:
        """Open a connection."""
        security = ClientSettings.from_properties({}, bootstrap=self.cluster.bootstrap, origin="a test").security
        return await SimConnection.open(
            self.cluster.host(1), self.cluster.port(1), security, client_id="c", timeout_s=5, label="c"
        )

    def play(self, client: Callable[["Stage"], Awaitable[None]]) -> None:
        """Run a client's part to its end."""

        async def main() -> None:
            await self.loop.spawn(self.process, client(self))  # type: ignore[arg-type]  # a coroutine, all of them

        try:
            with simulated(self.loop, seed=1):
                self.loop.run(main())
            assert not self.loop.mistakes
        finally:
            self.loop.dispose()


def produce(connection: Connection, sequence: int = 0) -> Answer:
    """Send a batch of one record."""
    made = filler_batch(
        1, producer_id=1, epoch=0, sequence=sequence, transactional=False, timestamp_ms=NOW_MS, codec=layout.NO_CODEC
    )
    chunks = encode_produce(VERSION, [("t", [PartitionBatch(0, made.header, made.body)])], acks=1, timeout_ms=10_000)
    return connection.submit_frame(PRODUCE, VERSION, chunks, lambda body: decode_produced(VERSION, body))


async def in_order(stage: Stage) -> None:
    """Many requests under way are carried out and answered in the order in which they were sent."""
    stage.network.delay = Span(0.0, 0.5)
    connection = await stage.open()
    answers = [produce(connection, at) for at in range(50)]
    told = [(await answer)["t", 0] for answer in answers]
    assert told == [Produced(0, at, "") for at in range(50)]


@pytest.mark.parametrize("seed", range(3))
def test_requests_keep_their_order(seed: int) -> None:
    """However the delays are drawn, nothing overtakes anything on one connection."""
    stage = Stage(seed)
    stage.play(in_order)
    assert stage.end == 50


async def reset_at_once(stage: Stage) -> None:
    """Send, give up the connection, and wait until all that may come has come."""
    connection = await stage.open()
    answers = [produce(connection, at) for at in range(4)]
    await asyncio.sleep(0.000_6)
    connection.reset()
    outcomes = await asyncio.gather(*answers, return_exceptions=True)
    assert isinstance(outcomes[-1], ConnectionLost)
    await asyncio.sleep(5.0)


def test_what_was_sent_before_a_reset_may_be_carried_out() -> None:
    """None of it, all of it, or the first few; each of these happens."""
    ends = set()
    for seed in range(60):
        stage = Stage(seed)
        stage.play(reset_at_once)
        ends.add(stage.end)
    assert {0, 4} < ends <= {0, 1, 2, 3, 4}


async def cut_late(stage: Stage) -> None:
    """The network breaks while a request is under way; see when it is carried out."""
    connection = await stage.open()
    stage.cluster.pause(1)
    answer = produce(connection)
    await asyncio.sleep(0.1)
    assert isinstance(connection, SimConnection)
    stage.network.cut(connection)
    with pytest.raises(ConnectionLost):
        await answer
    assert stage.end == 0
    stage.cluster.resume(1)
    await asyncio.sleep(5.0)


def test_a_request_inside_a_paused_broker_outlives_its_connection() -> None:
    """A broker that goes on may carry out what its client has long given up."""
    ends = []
    for seed in range(30):
        stage = Stage(seed)
        stage.play(cut_late)
        ends.append(stage.end)
    assert set(ends) == {0, 1}


async def freeze_at_send(stage: Stage) -> None:
    """The process is stopped between its decision to send and the leaving of the bytes."""
    connection = await stage.open()

    def stop(process: Process | None, _connection: SimConnection, api_key: int, message: object) -> None:
        assert (process, api_key) == (PROCESS.get(), PRODUCE)
        assert message is not None
        assert process is not None
        stage.network.before_send = None
        stage.loop.freeze(process)
        sleeping(stage.loop, 9.0, lambda: seen.append(stage.end))
        sleeping(stage.loop, 10.0, lambda: stage.loop.thaw(process))

    seen: list[int] = []
    stage.network.before_send = stop
    first, second = produce(connection, 0), produce(connection, 1)
    assert [(await first)["t", 0].base_offset, (await second)["t", 0].base_offset] == [0, 1]
    assert seen == [0]


def test_a_process_frozen_as_it_sends_sends_when_it_thaws() -> None:
    """Nothing leaves a frozen process, and then all leaves in its order."""
    stage = Stage(1)
    stage.play(freeze_at_send)
    assert stage.end == 2


async def stalled(stage: Stage) -> None:
    """Nothing arrives while the network stands still."""
    connection = await stage.open()
    assert isinstance(connection, SimConnection)
    stage.network.stall(connection)
    answers = [produce(connection, at) for at in range(3)]
    await asyncio.sleep(3.0)
    assert stage.end == 0
    stage.network.resume(connection)
    assert [(await answer)["t", 0].base_offset for answer in answers] == [0, 1, 2]


def test_a_stall_delays_and_loses_nothing() -> None:
    """What waited arrives in order."""
    stage = Stage(1)
    stage.play(stalled)
    assert stage.end == 3


async def killed(stage: Stage) -> None:
    """A broker's death is heard at once, and it can be reached again when it is back."""
    connection = await stage.open()
    await produce(connection)
    stage.cluster.kill(1)
    await asyncio.sleep(0.1)
    assert connection.closed
    with pytest.raises(Unreachable):
        await stage.open()
    stage.cluster.restart(1)
    await asyncio.sleep(10.0)
    assert (await produce(await stage.open()))["t", 0] == Produced(0, 0, "")


def test_a_killed_broker_breaks_its_connections() -> None:
    """Its log stays, and with it what it knows of producers."""
    stage = Stage(1)
    stage.play(killed)
    assert stage.end == 1


async def ask_for_nothing(stage: Stage) -> None:
    """Send a request as a message object rather than as a frame."""
    connection = await stage.open()
    answer = await connection.request(ops.list_offsets_request({}, replica_id=ops.DEBUGGER), timeout_s=1)
    assert ops.listed_offsets(answer) == {}


def test_messages_take_the_same_way_as_frames() -> None:
    """They are encoded and decoded by the real code, too."""
    stage = Stage(1)
    stage.play(ask_for_nothing)
    assert stage.end == 0
