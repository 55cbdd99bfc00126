"""The second stage: what the proxy topic holds goes to the destination topics, each record once.

It reads no source. A position is kept for each source partition, in the transaction of its records, and with it how
far the proxy topic was read; what was seen before is dropped, and what would leave a gap is refused.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from twinlog.batch.records import Record, decode
from twinlog.batch.scan import Data, batches
from twinlog.batch.view import Batch
from twinlog.errors import BadInput, CorruptBatch, TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.decide import Form
from twinlog.relay.fetch import Source
from twinlog.relay.progress import Forward
from twinlog.reo.envelope import Envelope, Means, meaning, read
from twinlog.reo.first_stage import proxy_place
from twinlog.reo.plan import Shape, pieces, wanted
from twinlog.reo.positions import Place, Position
from twinlog.reo.proxy_topics import Proxy, existing
from twinlog.reo.sender import Mark, Refusal, Sender
from twinlog.reo.settings import Partitioning
from twinlog.reo.stage import InTransactions, Part, Put, Sides, now_ms
from twinlog.wire import codes
from twinlog.wire.ops import EARLIEST, delete_records, one_offset

log = logging.getLogger("twinlog.reo")

DELETE_EVERY_S: Final = 10.0
DELETE_WITHIN_S: Final = 5.0


@dataclass(slots=True, eq=False, kw_only=True)
class SecondPart(Part):
    """A partition of a proxy topic; `reached` is where each source partition stands whose records it holds."""

    place: Place
    proxy: Proxy
    reached: dict[Place, Position] = field(default_factory=dict)

    def records(self, error: str) -> dict[Place, Position]:
        """How far the proxy topic is read, and each source partition copied."""
        own = Position(self.position, self.epoch, self.target, self.proxy.target_id, now_ms(), error)
        return {self.place: own} | {
            place: replace(one, time_ms=own.time_ms, error=error) for place, one in self.reached.items()
        }


class SecondStage(InTransactions[SecondPart]):
    """From the proxy topics into the destination topics."""

    name = "stage 2"

    def __init__(self, sides: Sides, reader: Source) -> None:
        super().__init__(sides, reader)
        self._found: list[Proxy] = []
        self._deleted: dict[TopicPartition, int] = {}
        self._delete_at = 0.0

    async def begin(self) -> Sequence[SecondPart]:
        """Take over, and go on where the proxy topics were read to."""
        found = self._found = await existing(self.settings, self.destination)
        await self.take_over()
        parts: list[SecondPart] = []
        for proxy in found:
            for number in range(proxy.partitions):
                if self.sides.owns(TopicPartition(proxy.topic, number)):
                    part = self._part(proxy, TopicPartition(proxy.name, number))
                    await self._put_back(part)
                    parts.append(part)
        return parts

    def _part(self, proxy: Proxy, where: TopicPartition) -> SecondPart:
        return SecondPart(
            where=where,
            topic_id=proxy.id,
            target=proxy.target,
            place=proxy_place(self.settings.application, self.destination.cluster_id, where, proxy.id),
            proxy=proxy,
        )

    async def _put_back(self, part: SecondPart) -> None:
        """Where the positions say."""
        known = self.positions.known
        own = known.get(part.place)
        start = await one_offset(self.destination, part.where, EARLIEST)
        part.position, part.epoch = (
            (start, -1) if own is None or own.next_offset < start else (own.next_offset, own.epoch)
        )
        part.told = "" if own is None else own.error
        part.reached = {
            place: one
            for place, one in known.items()
            if (place.application, place.topic, place.partition)
            == (self.settings.application, part.proxy.topic, part.where.partition)
            and one.target_id == part.proxy.target_id
        }

    async def changed(self) -> bool:
        """Whether proxy or destination topics are others."""
        return await existing(self.settings, self.destination) != self._found

    async def settle(self, parts: Sequence[SecondPart]) -> None:
        """Go on from what is committed."""
        await self.regain()
        for part in parts:
            await self._put_back(part)

    def topics(self) -> set[str]:
        """The destination topics."""
        return {proxy.target for proxy in self._found}

    def target_of(self, part: SecondPart) -> TopicPartition | None:
        """That of the same number."""
        kept = self.settings.partitioning is Partitioning.KEEP
        return TopicPartition(part.target, part.where.partition) if kept else None

    def form(self, part: SecondPart) -> Form:
        """The proxy topic's own batches, to be unwrapped."""
        del part
        return wanted

    async def forward(self, part: SecondPart, verdict: Forward, put: Put) -> None:
        """Unwrap and send on what is new, in the order of the proxy topic."""
        try:
            for batch in verdict.items:
                if isinstance(batch, Batch):
                    for record in decode(batch, where=part.where):
                        if not await self._unwrap(part, record, put):
                            return
                        part.position, part.epoch = record.offset + 1, batch.leader_epoch
        except (BadInput, CorruptBatch) as problem:
            part.stop_for(str(problem))
            return
        part.position, part.epoch = verdict.next_offset, verdict.source_epoch

    async def _unwrap(self, part: SecondPart, record: Record, put: Put) -> bool:
        """Send on what a record holds; False where it cannot go on for now."""
        envelope = read(record, part.where)
        self._check_whose(part, envelope, record.offset)
        known = part.reached.get(envelope.place)
        reached = None if known is None else known.next_offset
        target_id = part.proxy.target_id
        means = meaning(envelope, reached, positions_id=self.positions.topic_id, target_id=target_id)
        if means is Means.UNKNOWN:
            complaint = self._nothing_known(part, envelope)
            if complaint != part.complaint:
                log.error("%s", complaint)
            part.complaint = complaint
        elif means is Means.GAP:
            part.stop_for(_gap(part, envelope, reached))
            return False
        elif means is Means.BEGIN:
            part.complaint = ""
            part.reached[envelope.place] = self._position(part, envelope.first, envelope.epoch)
        elif means is Means.TAKE and reached is not None:
            if not await self._send(part, envelope, record, reached, put):
                return False
            part.reached[envelope.place] = self._position(part, envelope.next_offset, envelope.epoch)
        return True

    async def _send(self, part: SecondPart, envelope: Envelope, record: Record, reached: int, put: Put) -> bool:
        source = envelope.source
        shape = self._shape(part, envelope)
        cut = partial(wanted, shape=shape, exact=part.limit_bytes is not None)
        # The checksum of the record's own batch covered those in it.
        for batch in batches(memoryview(record.value or b""), source, check=False):
            made = [one for one in cut([Data(batch)], reached, source) if isinstance(one, Batch)]
            ready = [piece for one in made for piece in pieces(one, source, shape, limit_bytes=part.limit_bytes)]
            for piece in ready:
                if piece.partition >= part.proxy.target_partitions:
                    raise BadInput(
                        f"{source}: {part.target} has {part.proxy.target_partitions} partitions only. Add partitions "
                        f"to it, or set partitioning to key."
                    )
                mark = Mark(record.offset, piece.first, envelope.place)
                if not await put(TopicPartition(part.target, piece.partition), piece.batch, mark, 0):
                    return False
            # Where a later batch of the record stops the partition, what was sent of it counts.
            reached = max(reached, batch.next_offset)
            part.reached[envelope.place] = self._position(part, reached, envelope.epoch)
        return True

    def _shape(self, part: SecondPart, envelope: Envelope) -> Shape:
        settings = self.settings
        return Shape(
            partitions=part.proxy.target_partitions if settings.partitioning is Partitioning.KEY else 0,
            origin=envelope.place.cluster if settings.provenance else "",
            cut=self.destination.cluster_id if settings.provenance else "",
        )

    def _position(self, part: SecondPart, next_offset: int, epoch: int) -> Position:
        return Position(next_offset, epoch, part.target, part.proxy.target_id, now_ms())

    def _check_whose(self, part: SecondPart, envelope: Envelope, offset: int) -> None:
        place = envelope.place
        told = (place.application, place.topic, place.partition)
        ours = (self.settings.application, part.proxy.topic, part.where.partition)
        if told != ours:
            raise BadInput(
                f"{part.where} holds at offset {offset} a record of {envelope.source} that {place.application} put "
                f"there; here only {part.proxy.topic} of {self.settings.application} is expected. Give each its own "
                f"topic-proxy."
            )

    def _nothing_known(self, part: SecondPart, envelope: Envelope) -> str:
        known = self.positions.known.get(envelope.place)
        if known is not None and known.target_id != part.proxy.target_id:
            why = f"the destination topic {part.target} was created again (id {known.target_id} before)"
        else:
            why = f"{self.settings.positions_topic} has no position of it"
        return (
            f"{envelope.source} (source cluster {envelope.place.cluster}): {why}. What {part.where} holds of it is not "
            f"copied; start stage 1 again with start-from (earliest or latest), which says where to begin."
        )

    async def commit(
        self, sender: Sender, added: set[TopicPartition], changed: Sequence[tuple[SecondPart, str]]
    ) -> None:
        """As any transaction; then delete from the proxy topics what is behind it, now and then."""
        await super().commit(sender, added, changed)
        for part, _ in changed:
            self._deleted[part.where] = part.position
        if time.monotonic() >= self._delete_at and self._deleted:
            self._delete_at = time.monotonic() + DELETE_EVERY_S
            before, self._deleted = self._deleted, {}
            await self._delete(before)

    async def _delete(self, before: dict[TopicPartition, int]) -> None:
        try:
            told = await delete_records(self.destination, before, timeout_s=DELETE_WITHIN_S)
        except TwinlogError as error:
            log.warning("the proxy topic keeps what was copied for longer: %s", error)
            return
        refused = {where: codes.code_name(one.error) for where, one in told.items() if one.error}
        if refused:
            log.warning(
                "the proxy topic keeps what was copied; grant DELETE on it, or give it a retention: %s", refused
            )

    def halt(self, part: SecondPart, mark: Mark) -> None:
        """Within a record of the proxy topic: it is read again, from that source offset on."""
        part.position, part.epoch = mark.reading, -1
        if mark.place is not None:
            part.reached[mark.place] = replace(part.reached[mark.place], next_offset=mark.offset, epoch=-1)

    def is_before(self, part: SecondPart, mark: Mark) -> bool:
        """By place in the proxy topic, then by source offset."""
        reached = None if mark.place is None else part.reached.get(mark.place)
        return (part.position, -1 if reached is None else reached.next_offset) < (mark.reading, mark.offset)

    def lacking(self, part: SecondPart, first: int) -> str:
        """What was seen may be gone; whether more is gone, the next record tells."""
        part.position, part.epoch = first, -1
        return ""

    def named(self, part: SecondPart, refusal: Refusal) -> tuple[TopicPartition, str]:
        """The source partition."""
        place = refusal.mark.place
        return part.where if place is None else TopicPartition(place.topic, place.partition), part.target


def _gap(part: SecondPart, envelope: Envelope, reached: int | None) -> str:
    return (
        f"{part.where} lacks offsets {reached} to {envelope.first - 1} of {envelope.source}: they were deleted before "
        f"they were copied, or were written for another application.name. Nothing is skipped: end both stages, delete "
        f"{part.where.topic}, and start them again; the first then goes on at {reached}."
    )
