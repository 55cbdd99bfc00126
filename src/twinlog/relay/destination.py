"""The destination as the pump sees it: `append` takes a plan and says what became of it."""

import asyncio
from dataclasses import replace
from functools import partial

from twinlog.errors import TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.lanes import DataLane, DataLine, answered, lane_quota
from twinlog.relay.lease import Lease
from twinlog.relay.longrun import LONG_RUN, LongRun
from twinlog.relay.lookups import Lookups
from twinlog.relay.markers import MarkerJob, MarkerLane
from twinlog.relay.progress import Accepted, Answer, BlankStep, DataStep, Plan, Send, Unknown
from twinlog.relay.quota import Quota
from twinlog.relay.spread import Spread
from twinlog.relay.stream import Route, Stream
from twinlog.relay.watermarks import Watermarks
from twinlog.relay.window import Window
from twinlog.wire.cluster import Cluster
from twinlog.wire.metadata import Leader

# A broker handles one request a connection at a time, so what many partitions have goes over several connections. Up to
# so many partitions' data goes over one: measured with 4, that is a sixth faster than over two, with 12 about the same.
DATA_LANES, DATA_TOGETHER, MARKER_LANES = 2, 8, 4
# The same for all workers, so that a quota can be set on it; not that of the connections that keep the lease.
DATA_CLIENT_ID = "twinlog-data"


class Destination:
    """All lanes of this worker into the destination cluster."""

    def __init__(self, cluster: Cluster, *, timeout_s: float = 30.0) -> None:
        self.cluster = cluster
        self.lookups = Lookups(cluster)
        self.timeout_s = timeout_s
        self._watermarks = Watermarks(cluster)
        self._data_spread, self._marker_spread = Spread(DATA_LANES, together=DATA_TOGETHER), Spread(MARKER_LANES)
        self._data: dict[tuple[int, int], DataLane] = {}
        self._markers: dict[tuple[int, int], MarkerLane] = {}
        # By lane, and kept when its connection is replaced: what was learnt of the broker's quota still holds.
        self._quotas: dict[tuple[int, int], Quota] = {}

    def __repr__(self) -> str:
        return f"Destination({len(self._data)} data lanes, {len(self._markers)} marker lanes)"

    @property
    def throttled_ms(self) -> int:
        """For how long the brokers have throttled the data lanes so far, in milliseconds, over all of them."""
        return sum(quota.throttled_ms for quota in self._quotas.values())

    def open_route(self, where: TopicPartition, leader: Leader, lease: Lease, position: int) -> Route:
        """How a stream that begins at `position` reaches `leader`; to be closed with the stream."""
        node = leader.node
        line = DataLine(where, lease, self._window(where, leader, position))
        return Route(node, line, self._data_spread.take(node), self._marker_spread.take(node))

    def close_route(self, route: Route) -> None:
        """Look after what `open_route` has given no more."""
        self._data_spread.give_back(route.node, route.data)
        self._marker_spread.give_back(route.node, route.markers)
        if route.line.window is not None:
            self._watermarks.forget(route.line.window)

    def _window(self, where: TopicPartition, leader: Leader, position: int) -> Window | None:
        """A window for what is sent with `acks=1`; None where the partition has one replica."""
        topic = self.cluster.topic(where.topic)
        info = topic.partitions.get(where.partition) if topic is not None else None
        if info is None or len(info.replicas) < 2:
            return None
        window = Window(where, leader, position)
        self._watermarks.watch(window)
        return window

    async def append(self, stream: Stream, plan: Plan) -> Answer:
        """Write the plan's steps in order; the first answer that is not Accepted ends it."""
        answer = await self._steps(stream, plan)
        stream.counts.note(plan, answer)
        return answer

    async def _steps(self, stream: Stream, plan: Plan) -> Answer:
        for step in plan.steps:
            try:
                answer = await self._step(stream, step)
            except TwinlogError as error:
                first = step.first if isinstance(step, BlankStep) else step.sends[0].batch.first
                answer = Unknown(first, str(error))
            if not isinstance(answer, Accepted):
                return answer
        return Accepted()

    async def _step(self, stream: Stream, step: DataStep | BlankStep) -> Answer:
        if isinstance(step, DataStep):
            return await self._write_data(stream, step)
        if stream.window is None:
            return await self._blanks(stream, step)
        return await self._blanks_behind(stream, stream.window, step)

    async def _write_data(self, stream: Stream, step: DataStep) -> Answer:
        line = stream.route.line
        async with line.turn:
            try:
                lane = await self._data_lane(stream)
            except TwinlogError as error:
                # What comes behind this must not go without it.
                line.lose(str(error))
                raise
            done = await _begun(lane, stream, step.sends)
        return await answered(line, done)

    async def _blanks_behind(self, stream: Stream, window: Window, step: BlankStep) -> Answer:
        """A broker cannot judge a marker, so none is sent behind data that another leader may lack.

        Where the high watermark has told that it is there, the true log end is looked at, too: the leader may have
        changed, twice, since then.
        """
        if not await window.drained(self.timeout_s):
            held_up = window.lost or f"the high watermark stands at {window.confirmed} for {self.timeout_s:.0f} s"
            return Unknown(step.first, held_up)
        answer = await self._blanks(stream, replace(step, probe=step.probe or window.by_mark))
        if isinstance(answer, Accepted):
            window.rests_at(step.first + step.count)
        return answer

    async def _blanks(self, stream: Stream, step: BlankStep) -> Answer:
        if step.at_once or step.count >= LONG_RUN:
            return await LongRun(self.lookups, stream, step, write_markers=partial(self.markers, stream)).write()
        return await self.markers(stream, step)

    async def markers(self, stream: Stream, step: BlankStep, coordinator_epoch: int = 0) -> Answer:
        """Write a run of blanks as markers of the step's producer id."""
        job = MarkerJob(
            stream.where, step.first, step.count, producer=(step.producer_id, step.epoch), lease=stream.lease
        )
        job.probe = step.probe
        job.coordinator_epoch = coordinator_epoch
        job.leader = stream.leader
        lane = await self._marker_lane(stream)
        return await lane.append(job)

    async def close(self) -> None:
        """End every lane; the cluster's connections are the cluster's own to close."""
        for lane in self._markers.values():
            await lane.close()
        self._markers.clear()
        await self._watermarks.close()
        await self.lookups.close()
        self._data.clear()

    async def _data_lane(self, stream: Stream) -> DataLane:
        key = (stream.leader.node, stream.route.data)
        lane = self._data.get(key)
        if lane is not None and not lane.closed:
            return lane
        connection = await self.cluster.lane(key[0], f"data-{key[1]}", client_id=DATA_CLIENT_ID)
        lane = self._data.get(key)
        if lane is None or lane.closed:
            quota = self._quotas.setdefault(key, lane_quota())
            lane = self._data[key] = DataLane(connection, timeout_s=self.timeout_s, quota=quota)
        return lane

    async def _marker_lane(self, stream: Stream) -> MarkerLane:
        key = (stream.leader.node, stream.route.markers)
        lane = self._markers.get(key)
        if lane is not None and not lane.closed:
            return lane
        connection = await self.cluster.lane(key[0], f"markers-{key[1]}")
        lane = self._markers.get(key)
        if lane is None or lane.closed:
            if lane is not None:
                lane.retire()
            lane = self._markers[key] = MarkerLane(connection, timeout_s=self.timeout_s)
        return lane


async def _begun(lane: DataLane, stream: Stream, sends: tuple[Send, ...]) -> asyncio.Future[Answer]:
    """Hand `sends` to the lane as the stream's gate lets them through; what the last one comes to holds for all."""
    line, gate = stream.route.line, stream.gate
    if gate is None:
        return lane.begin(line, sends)
    parts = gate.parts(sends)
    try:
        for part in parts[:-1]:
            await gate.passed(part)
            lane.begin(line, part)
        await gate.passed(parts[-1])
    except asyncio.CancelledError:
        line.give_up()
        raise
    return lane.begin(line, parts[-1])
