"""The marker lane: control records written directly to a partition's leader, each one offset, visible to nobody.

Markers are the one append that a broker cannot judge, so a partition has one request under way at most, its answer is
always awaited, and nothing is ever sent again from here. Requests of many partitions are merged, since a broker
handles one request a connection at a time.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from kafka.protocol.producer.transaction import WriteTxnMarkersRequest

from twinlog.errors import TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.lease import Lease
from twinlog.relay.progress import Accepted, Answer, Displaced, LeaseLost, Refused, Unknown
from twinlog.wire import codes
from twinlog.wire.connection import Connection
from twinlog.wire.metadata import Leader
from twinlog.wire.ops_log import (
    DEBUGGER,
    LATEST,
    NEWEST_LIST_OFFSETS,
    ListedOffset,
    list_offsets_request,
    listed_offsets,
)
from twinlog.wire.produce import NEWEST_MARKERS, WRITE_TXN_MARKERS, MarkerRun, decode_markers, encode_markers
from twinlog.wire.retry import ANSWER_SLACK_S

# Markers for one partition in one request, and for all partitions of a request.
RUN_PER_REQUEST, MARKERS_PER_REQUEST = 200, 2_000
# Codes that say that a marker was not written. After any other, and of more than one marker, the log has to be read.
NOT_WRITTEN = frozenset(
    {
        codes.UNKNOWN_TOPIC_OR_PARTITION,
        codes.TOPIC_AUTHORIZATION_FAILED,
        codes.CLUSTER_AUTHORIZATION_FAILED,
        codes.INVALID_PRODUCER_EPOCH,
        codes.TRANSACTION_COORDINATOR_FENCED,
        codes.PRODUCER_FENCED,
    }
)

# The right is checked before anything of a request is looked at (`KafkaApis.handleWriteTxnMarkersRequest`).
ABOUT_THE_REQUEST = frozenset({codes.CLUSTER_AUTHORIZATION_FAILED})


class MarkerJob:
    """A run of `count` blanks from `first` on, all under one producer id and epoch."""

    __slots__ = (
        "coordinator_epoch",
        "count",
        "done",
        "epoch",
        "first",
        "leader",
        "lease",
        "probe",
        "producer_id",
        "where",
        "written",
    )

    def __init__(
        self, where: TopicPartition, first: int, count: int, *, producer: tuple[int, int], lease: Lease
    ) -> None:
        self.where = where
        self.first = first
        self.count = count
        self.producer_id, self.epoch = producer
        self.coordinator_epoch = 0
        # A deposed leader would tell its own log end to who does not say which leader is meant.
        self.leader = Leader(-1, -1)
        self.lease = lease
        self.probe = False
        self.written = 0
        self.done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def run(self) -> MarkerRun:
        """What goes into the next request."""
        count = min(self.count - self.written, RUN_PER_REQUEST)
        where = self.where
        return MarkerRun(where.topic, where.partition, self.producer_id, self.epoch, count, self.coordinator_epoch)

    def finish(self, answer: Answer) -> None:
        """Give the answer, once."""
        if not self.done.done():
            self.done.set_result(answer)


class MarkerLane:
    """Writes markers over one connection, one request after the other."""

    def __init__(self, connection: Connection, *, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._version = connection.version_of(WriteTxnMarkersRequest, NEWEST_MARKERS)
        self._queue: list[MarkerJob] = []
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._serve(), name=f"markers {connection!r}")

    def __repr__(self) -> str:
        return f"MarkerLane({self._connection!r}, {len(self._queue)} waiting)"

    @property
    def closed(self) -> bool:
        """Whether its connection is gone; a new lane is needed then."""
        return self._connection.closed or self._task.done()

    async def append(self, job: MarkerJob) -> Answer:
        """Write the job's markers and await the answer."""
        if self.closed:
            return Unknown(job.first, "the connection for markers is closed")
        self._queue.append(job)
        self._wake.set()
        try:
            return await asyncio.shield(job.done)
        except asyncio.CancelledError:
            job.finish(LeaseLost(job.first + job.written))
            raise

    def retire(self) -> None:
        """Let the lane notice that its connection is gone."""
        self._wake.set()

    async def close(self) -> None:
        """End the lane; what waits is answered as unknown."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._unknown(self._queue, "the lane for markers was closed")

    async def _serve(self) -> None:
        jobs: list[MarkerJob] = []
        try:
            while not self._connection.closed:
                if not self._queue:
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                jobs = self._take()
                if jobs:
                    await self._round(jobs)
        except (TwinlogError, TimeoutError) as error:
            self._unknown(jobs, str(error) or f"no answer within {self._timeout_s + ANSWER_SLACK_S:.0f} s")
        except asyncio.CancelledError:
            self._unknown(jobs, "the worker is ending")
            raise
        finally:
            self._unknown(jobs, "the lane for markers has ended")
            self._unknown(self._queue, "the connection for markers is closed")
            self._connection.reset()

    def _take(self) -> list[MarkerJob]:
        """Jobs for one request; those without a lease are answered at once."""
        taken: list[MarkerJob] = []
        markers = 0
        while self._queue and markers < MARKERS_PER_REQUEST:
            job = self._queue.pop(0)
            if job.done.done():
                continue
            taken.append(job)
            markers += job.run().count
        return taken

    async def _round(self, jobs: list[MarkerJob]) -> None:
        await self._probe([job for job in jobs if job.probe and not job.written], before=True)
        for job in jobs:
            if not job.done.done() and not job.lease.valid():
                job.finish(LeaseLost(job.first + job.written))
        going = [job for job in jobs if not job.done.done()]
        if not going:
            return
        runs = [job.run() for job in going]
        async with self._bound():
            codes = await self._connection.submit_frame(
                WRITE_TXN_MARKERS,
                self._version,
                encode_markers(self._version, runs),
                partial(decode_markers, self._version),
            )
        for job, run in zip(going, runs, strict=True):
            _judge(job, run.count, codes.get((job.where.topic, job.where.partition)))
        await self._probe([job for job in going if job.probe or job.count > 1], before=False)
        for job in going:
            if job.written == job.count:
                job.finish(Accepted())
            elif not job.done.done():
                self._queue.append(job)

    async def _probe(self, jobs: Sequence[MarkerJob], *, before: bool) -> None:
        """Compare the true log ends with where the jobs stand."""
        asked = [job for job in jobs if not job.done.done()]
        if not asked:
            return
        request = list_offsets_request(
            {job.where: (job.leader, LATEST) for job in asked}, replica_id=DEBUGGER, read_committed=False
        )
        answer = await self._connection.request(request, timeout_s=self._timeout_s, max_version=NEWEST_LIST_OFFSETS)
        ends = listed_offsets(answer)
        for job in asked:
            found = ends.get(job.where, ListedOffset(-1, error=-1))
            _compare(job, (found.error, found.offset), before=before)

    def _bound(self) -> asyncio.Timeout:
        # The broker answers within its own request timeout; a connection that does not is given up by reset only.
        return asyncio.timeout(self._timeout_s + ANSWER_SLACK_S)

    def _unknown(self, jobs: list[MarkerJob], reason: str) -> None:
        for job in jobs:
            job.finish(Unknown(job.first + job.written, reason))
        jobs.clear()


def _judge(job: MarkerJob, count: int, code: int | None) -> None:
    at = job.first + job.written
    if code == codes.NONE:
        job.written += count
    elif code in NOT_WRITTEN and (count == 1 or code in ABOUT_THE_REQUEST):
        job.finish(Refused(code or 0, at))
    else:
        job.finish(Unknown(at, f"error {code} for a run of {count} markers"))


def _compare(job: MarkerJob, found: tuple[int, int], *, before: bool) -> None:
    code, end = found
    expected = job.first + job.written
    if code:
        job.finish(Unknown(expected, f"error {code} when asked for the log end"))
    elif end > expected:
        job.finish(Displaced(expected=expected, found=end))
    elif end < expected:
        moment = "before" if before else "after"
        job.finish(Unknown(expected, f"the log ends at {end} {moment} the markers up to {expected}"))
