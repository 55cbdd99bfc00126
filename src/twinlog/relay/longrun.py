"""Very long runs of blanks: one transaction of tiny records, aborted, closed off by markers.

The coordinator writes its markers at least once, so how many offsets an aborted transaction takes is known only
afterwards. Some dozens of offsets are left over for that; what remains of them is filled by markers of the partition's
own producer. A marker of the transaction's producer at a higher epoch then fences whatever the coordinator may still
send.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from twinlog.batch.blank import MAX_FILLER, filler_batch
from twinlog.batch.edit import next_sequence
from twinlog.batch.layout import HEADER_SIZE
from twinlog.batch.scan import batches
from twinlog.batch.view import Batch
from twinlog.errors import AuthorizationFailed, BrokerError, GiveWay, RetryLater, TwinlogError
from twinlog.relay.lanes import NOT_APPENDED
from twinlog.relay.lookups import Lookups
from twinlog.relay.progress import Accepted, Answer, BlankStep, Displaced, LeaseLost, Refused, Unknown
from twinlog.relay.settle import settled_end
from twinlog.relay.stream import Stream
from twinlog.wire import codes
from twinlog.wire.ops import (
    Producer,
    add_partitions,
    end_txn,
    init_producer_id,
    produce_batch,
    read_log,
)

# Below this, markers alone are as fast as the round trips of a transaction.
LONG_RUN = 10_000
# Offsets left for the coordinator's surplus markers and for ours. One marker is usual; killing brokers brought a
# handful.
SLACK = 64
# What a record of filler takes at most when compressed (0.8 bytes in large batches, more in small ones).
BYTES_A_RECORD = 2
# From this max.message.bytes on the largest filler batch (0.76 MB) fits.
SMALL_TOPIC_BYTES = 900_000
# A coordinator that moves needs some seconds; what takes longer is left to the takeover.
COMPLETE_WITHIN_S = 60.0
LOG_END_STABLE_S = 0.5
POLL_S = 0.05
# A compacted topic refuses records without a key.
NULL_KEY, FILLER_KEY = None, b"\x00"


WriteMarkers = Callable[[BlankStep, int], Awaitable[Answer]]
"""Writes a run of markers under a coordinator epoch."""


class LongRun:
    """One run of blanks from `step.first`, written by the partition's own transactional id."""

    def __init__(self, lookups: Lookups, stream: Stream, step: BlankStep, *, write_markers: WriteMarkers) -> None:
        self._lookups = lookups
        self._cluster = lookups.cluster
        self._stream = stream
        self._step = step
        self._write_markers = write_markers
        self._behind = step.first + step.count

    async def write(self) -> Answer:
        """Write the run; every surprise is Unknown, and the takeover reads what came of it."""
        try:
            return await self._write()
        except GiveWay:
            return LeaseLost(self._step.first)
        except AuthorizationFailed as error:
            return Refused(codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, self._step.first, message=str(error))
        except (TwinlogError, TimeoutError) as error:
            return Unknown(self._step.first, f"a long run of blanks was interrupted: {error}")

    async def _write(self) -> Answer:
        stream, step = self._stream, self._step
        self._check_lease()
        # In this order: a commit that stands says that the lease was not fenced, so that a successor's own call comes
        # after ours and makes our epoch void.
        producer = await init_producer_id(self._cluster, stream.fill_id)
        await stream.before_long_run(step.epoch)
        self._check_lease()
        await add_partitions(self._cluster, stream.fill_id, producer, [stream.where])
        end = step.first
        sequence = 0
        for count in _portions(step.count - SLACK, records_a_batch(stream.max_batch_bytes)):
            if not stream.lease.valid():
                return LeaseLost(end)
            answer = await self._produce(producer, sequence, count, end)
            if not isinstance(answer, Accepted):
                return answer
            end += count
            sequence = next_sequence(sequence, count)
        if not stream.lease.valid():
            return LeaseLost(end)
        await end_txn(self._cluster, stream.fill_id, producer, commit=False)
        higher = await self._complete(producer)
        end = await settled_end(
            self._lookups, stream.where, time.monotonic, still_s=LOG_END_STABLE_S, within_s=COMPLETE_WITHIN_S
        )
        # At least one marker of the coordinator's, and room for the three that close it off.
        if not self._behind - SLACK < end <= self._behind - 3:
            return Displaced(expected=self._behind - SLACK + 1, found=end)
        return await self._close_off(higher, end)

    def _check_lease(self) -> None:
        # A partition added without it would be aborted by a timeout some day: a marker in another owner's log.
        if not self._stream.lease.valid():
            raise GiveWay(f"{self._stream.where}: the lease ran out before the run's transaction")

    async def _produce(self, producer: Producer, sequence: int, count: int, expected: int) -> Answer:
        stream = self._stream
        batch = filler_batch(
            count,
            producer_id=producer.id,
            epoch=producer.epoch,
            sequence=sequence,
            transactional=True,
            timestamp_ms=self._step.timestamp_ms,
            key=FILLER_KEY if stream.compacted else NULL_KEY,
        )
        produced = await produce_batch(
            self._cluster, stream.where, batch.header + bytes(batch.body), transactional_id=stream.fill_id, acks=-1
        )
        if produced.error in NOT_APPENDED:
            return Refused(produced.error, expected, batch.size, produced.message)
        if produced.error:
            return Unknown(expected, f"error {produced.error} for {count} filler records")
        if produced.base_offset != expected:
            return Displaced(expected=expected, found=produced.base_offset)
        return Accepted()

    async def _complete(self, producer: Producer) -> Producer:
        """Wait until the coordinator has written its markers; it refuses a new epoch (51) until then."""
        async with asyncio.timeout(COMPLETE_WITHIN_S):
            while True:
                try:
                    return await init_producer_id(self._cluster, self._stream.fill_id, producer=producer)
                except RetryLater as error:
                    if isinstance(error, BrokerError) and error.code not in codes.SAME_AGAIN:
                        raise
                await asyncio.sleep(POLL_S)

    async def _close_off(self, higher: Producer, end: int) -> Answer:
        """One marker of ours, one of the transaction's producer at a higher epoch, the rest ours."""
        coordinator_epoch = await self._coordinator_epoch(end)
        ours = replace(self._step, first=end, count=1, probe=True)
        theirs = replace(self._step, first=end + 1, count=1, producer_id=higher.id, epoch=higher.epoch, probe=True)
        rest = replace(self._step, first=end + 2, count=self._behind - end - 2, probe=True)
        for step, epoch in ((ours, 0), (theirs, coordinator_epoch), (rest, 0)):
            answer = await self._write_markers(step, epoch)
            if not isinstance(answer, Accepted):
                return answer
        return Accepted()

    async def _coordinator_epoch(self, end: int) -> int:
        """The epoch in the last control record: a marker with a lower one is refused with 52."""
        where = self._stream.where
        chunk = await read_log(self._cluster, where, end - 1, max_bytes=65_536, read_committed=False)
        last: Any = None
        for batch in batches(chunk.records, where):
            last = batch
        marker = last.marker() if isinstance(last, Batch) and last.control else None
        if marker is None:
            raise RetryLater(f"{where}: offset {end - 1} should be the marker of an aborted transaction and is not")
        return marker.coordinator_epoch


def records_a_batch(max_batch_bytes: int) -> int:
    """How many filler records one batch may have in a topic with this max.message.bytes.

    A million (0.76 MB) take a broker 0.05 to 0.25 s, since it decompresses and checks each.
    """
    if max_batch_bytes >= SMALL_TOPIC_BYTES:
        return MAX_FILLER
    return max(1, (max_batch_bytes - HEADER_SIZE) // BYTES_A_RECORD)


def _portions(count: int, most: int) -> list[int]:
    whole, rest = divmod(count, most)
    return [most] * whole + ([rest] if rest else [])
