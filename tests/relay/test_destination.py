"""How a plan's steps are carried out: in order, each behind the last, and what each kind of step asks for first."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from twinlog.batch.edit import Outgoing
from twinlog.errors import RetryLater
from twinlog.names import TopicPartition
from twinlog.relay import destination as destination_module
from twinlog.relay.counts import Counts
from twinlog.relay.destination import DATA_CLIENT_ID, DATA_TOGETHER, Destination
from twinlog.relay.lease import Lease
from twinlog.relay.longrun import LONG_RUN
from twinlog.relay.progress import Accepted, Answer, BlankStep, DataStep, Plan, Progress, Refused, Send, Unknown
from twinlog.relay.stream import Stream
from twinlog.relay.window import Window
from twinlog.wire.cluster import Cluster
from twinlog.wire.metadata import Leader, PartitionInfo

WHERE = TopicPartition("orders", 0)
LEADER = Leader(4, 7)
AFTER = Progress(WHERE, 20, 7, 0, 0, 0)


class Lane:
    """A data or marker lane: notes what it is given, and answers with what the test has put there."""

    def __init__(self, connection: Any, **_: Any) -> None:
        self.closed = False
        self.connection = connection
        self.jobs: list[Any] = []
        self.answers: list[Answer] = []

    def _next(self) -> Answer:
        return self.answers.pop(0) if self.answers else Accepted()

    def begin(self, _line: Any, sends: tuple[Send, ...]) -> "asyncio.Future[Answer]":
        """Data."""
        self.jobs.append(sends)
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        done.set_result(self._next())
        return done

    async def append(self, job: Any) -> Answer:
        """A run of markers."""
        self.jobs.append((job.first, job.count, job.probe))
        return self._next()

    async def close(self) -> None:
        """As at the end of a worker."""
        self.closed = True

    def retire(self) -> None:
        """As when its connection is gone."""


class World:
    """A destination over a cluster of one topic, whose lanes are the above."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, replicas: int = 1) -> None:
        self.opened: list[tuple[int, str, str | None]] = []
        self.away = False
        self.info = PartitionInfo(4, 7, tuple(range(replicas)), tuple(range(replicas)), 0)
        monkeypatch.setattr(destination_module, "DataLane", Lane)
        monkeypatch.setattr(destination_module, "MarkerLane", Lane)
        self.destination = Destination(cast("Cluster", self))
        self.lease = Lease(lambda: 0.0, 1e9)
        self.lease.renewed(0.0)
        self.route = self.destination.open_route(WHERE, LEADER, self.lease, 10)
        self.stream = self._stream()

    def topic(self, _name: str) -> Any:
        """As the cluster's."""
        return SimpleNamespace(partitions={0: self.info})

    async def lane(self, node: int, name: str, *, client_id: str | None = None) -> str:
        """As the cluster's; the connection is its name."""
        self.opened.append((node, name, client_id))
        if self.away:
            raise RetryLater("no connection")
        return name

    def _stream(self) -> Stream:
        unused: Any = None
        return Stream(WHERE, LEADER, self.lease, "fill", False, 1 << 20, unused, unused, self.route, Counts())

    async def append(self, *steps: DataStep | BlankStep) -> Answer:
        """Carry out a plan."""
        return await self.destination.append(self.stream, Plan(steps, AFTER))

    @property
    def jobs(self) -> list[Any]:
        """What all lanes were given."""
        destination = self.destination
        lanes = [*destination._data.values(), *destination._markers.values()]
        return [job for lane in cast("list[Lane]", lanes) for job in lane.jobs]


def data(first: int) -> DataStep:
    """One batch of one record."""
    return DataStep((Send(Outgoing(b"h" * 61, memoryview(b"b"), first, 1, 0), False),))


def blank(first: int, count: int = 2) -> BlankStep:
    """A short run of blanks."""
    return BlankStep(first, count, 7, 1, probe=False)


async def test_steps_go_one_after_the_other_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data over its lane and client id, blanks over theirs; a lane is opened once."""
    world = World(monkeypatch)
    assert await world.append(data(10), blank(11), data(13)) == Accepted()
    assert world.opened == [(4, "data-0", DATA_CLIENT_ID), (4, "markers-0", None)]
    assert [job if isinstance(job, tuple) and isinstance(job[0], int) else len(job) for job in world.jobs] == [
        1,
        1,
        (11, 2, False),
    ]
    counts = world.stream.counts
    assert (counts.batches, counts.blanks, counts.refused) == (2, 2, 0)


async def test_first_answer_that_is_not_accepted_ends_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes behind it is not sent."""
    world = World(monkeypatch)
    await world.append(data(10))
    refused = Refused(10, 11)
    cast("Lane", world.destination._data[4, 0]).answers = [refused]
    assert await world.append(data(11), blank(12)) == refused
    assert world.destination._markers == {}
    assert world.stream.counts.refused == 1


async def test_broker_that_cannot_be_reached_makes_the_outcome_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first offset that was to be written, and the line sends nothing more."""
    world = World(monkeypatch)
    world.away = True
    assert await world.append(data(10)) == Unknown(10, "no connection")
    assert world.route.line.failure == Unknown(-1, "no connection")
    assert await world.append(blank(10)) == Unknown(10, "no connection")


async def test_closed_lane_is_replaced_and_what_was_learnt_of_quotas_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker's quota outlives the connection."""
    world = World(monkeypatch)
    await world.append(data(10), blank(11))
    quota = world.destination._quotas[4, 0]
    quota.answered(250, 0.0, size=1)
    for lane in (*world.destination._data.values(), *world.destination._markers.values()):
        cast("Lane", lane).closed = True
    assert await world.append(data(13), blank(14)) == Accepted()
    assert len(world.opened) == 4
    assert world.destination._quotas[4, 0] is quota
    assert world.destination.throttled_ms == 250


async def test_blanks_wait_until_all_before_them_is_on_every_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker cannot judge a marker, so none is sent behind data that another leader may lack."""
    world = World(monkeypatch, replicas=3)
    window = world.route.line.window
    assert isinstance(window, Window)
    window.sent(12, 100)
    writing = asyncio.create_task(world.append(blank(12)))
    await asyncio.sleep(0.01)
    assert world.jobs == []
    window.passed(12, by_mark=True)
    assert await writing == Accepted()
    # The leader may have changed, twice, since the high watermark told so: the true end is looked at, too.
    assert world.jobs == [(12, 2, True)]
    assert window.confirmed == 14
    await world.destination.close()


async def test_blanks_behind_data_that_stays_unconfirmed_are_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their outcome is unknown, so that the takeover reads what is there."""
    world = World(monkeypatch, replicas=3)
    world.destination.timeout_s = 0.05
    window = world.route.line.window
    assert isinstance(window, Window)
    window.sent(12, 100)
    answer = await world.append(blank(12))
    assert isinstance(answer, Unknown)
    assert "the high watermark stands at 10" in answer.reason
    assert world.jobs == []
    await world.destination.close()


async def test_long_run_is_written_as_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """From this length on, and not before, unless a transaction is asked for."""
    world, written = World(monkeypatch), []

    class Run:
        def __init__(self, *_: Any, **__: Any) -> None:
            """As a long run."""

        async def write(self) -> Answer:
            """Written."""
            written.append(1)
            return Accepted()

    monkeypatch.setattr(destination_module, "LongRun", Run)
    await world.append(blank(10, LONG_RUN - 1))
    assert (len(written), len(world.jobs)) == (0, 1)
    await world.append(blank(10, LONG_RUN))
    assert (len(written), len(world.jobs)) == (1, 1)
    await world.append(replace(blank(10, LONG_RUN - 1), at_once=True))
    assert (len(written), len(world.jobs)) == (2, 1)


async def test_routes_are_spread_over_the_lanes_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many streams to one broker share a lane, the next gets another; who comes later takes what is given back."""
    world = World(monkeypatch)
    routes = [
        world.destination.open_route(TopicPartition("orders", part), LEADER, world.lease, 0)
        for part in range(DATA_TOGETHER)
    ]
    assert [route.data for route in (world.route, *routes)] == [0] * DATA_TOGETHER + [1]
    world.destination.close_route(routes[0])
    assert world.destination.open_route(TopicPartition("orders", 99), LEADER, world.lease, 0).data == 0
