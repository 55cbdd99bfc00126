"""The first stage: the source's batches go into the proxy topic, each at least once, with where they came from.

Nothing is written down of it but errors: how far a source partition was copied is told by the last record of it in the
proxy topic, or by the second stage's position where there is none. So a restart, or two at once, may write what is
there already; the second stage drops it.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, cast

from twinlog.batch.scan import Blank, Data
from twinlog.batch.view import Batch, OldBatch
from twinlog.errors import BadInput, TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.decide import Form
from twinlog.relay.fetch import Source
from twinlog.relay.progress import Forward
from twinlog.reo.direct import lost_by_retention
from twinlog.reo.envelope import NOTHING_KNOWN, Envelope, written
from twinlog.reo.positions import Place, Position, encoded, has_begun
from twinlog.reo.proxy_topics import Proxy, first_of, last_of, prepared
from twinlog.reo.sender import NOWHERE, Mark, Refusal, Sender
from twinlog.reo.stage import PRODUCE_WITHIN_S, Part, Put, Sides, Stage, beginning, now_ms
from twinlog.reo.topics import Route, routes, starts
from twinlog.wire import codes
from twinlog.wire.ops import Producer, init_producer_id, produce_batch

log = logging.getLogger("twinlog.reo")

CHUNK_BYTES: Final = 1_048_576
"""How much of the source one record of the proxy topic holds, unless a single batch is larger."""


@dataclass(slots=True, eq=False, kw_only=True)
class FirstPart(Part):
    """A source partition; all below `wrapped` is in the proxy topic or on its way there."""

    place: Place
    target_id: str
    proxy: TopicPartition
    proxy_id: str
    wrapped: int = 0

    def records(self, error: str) -> dict[Place, Position]:
        """Only what stops it: under a name that no position has."""
        place = errors_of_first_stage(self.place)
        return {place: Position(self.position, self.epoch, self.target, self.target_id, now_ms(), error)}


def errors_of_first_stage(place: Place) -> Place:
    """Where the first stage writes down what stops it."""
    return replace(place, application=f"{place.application}/1")


def proxy_place(application: str, cluster: str, where: TopicPartition, topic_id: str) -> Place:
    """Under which the second stage keeps how far it has read a partition of a proxy topic."""
    return Place(application, cluster, where.topic, topic_id, where.partition)


class FirstStage(Stage[FirstPart]):
    """From the source's topics into the proxy topics."""

    name = "stage 1"

    def __init__(self, sides: Sides, reader: Source) -> None:
        super().__init__(sides, reader)
        self._source = reader.cluster
        self._found: list[tuple[Route, Proxy]] = []

    async def begin(self) -> Sequence[FirstPart]:
        """Find where each partition goes on, and say in the proxy topic where one begins."""
        await self.positions.ensure(self.settings.replication_factor)
        await self._own_producer()
        others = await self.sides.others_positions()
        begun = has_begun(self.positions.known, self.settings.application, self._source.cluster_id)
        parts: list[FirstPart] = []
        self._found = [
            (route, await prepared(self.settings, route, self.destination))
            for route in await routes(self.settings, self._source, self.destination)
        ]
        for route, proxy in self._found:
            parts += await self._parts(route, proxy, others | self.positions.known, begun=begun)
        if not begun:
            await self._write(beginning(self.settings.application, self._source.cluster_id))
        self.settings = self.settings.once_begun()
        return parts

    async def _own_producer(self) -> None:
        """A producer of its own, without a transactional id, and the positions as far as they are decided."""
        self._sender = None
        producer = await init_producer_id(self.destination)
        await self.positions.refresh(decided_only=True)
        self._sender = Sender(self.destination, None, producer, timeout_s=PRODUCE_WITHIN_S)

    async def _parts(self, route: Route, proxy: Proxy, known: dict[Place, Position], *, begun: bool) -> list[FirstPart]:
        mine = [n for n in range(route.partitions) if self.sides.owns(TopicPartition(route.topic, n))]
        made = {n: self._part(route, proxy, n) for n in mine}
        ends: dict[int, int] = {}
        for part in made.values():
            told, ends[part.where.partition] = await self._told(part)
            if told is not None:
                known, begun = known | {part.place: told}, True
        begins = await starts(
            self.settings, route, known, self._source, self.destination, mine=self.sides.owns, begun=lambda _: begun
        )
        for where, (position, epoch) in begins.items():
            part = made[where.partition]
            part.position, part.epoch = position, epoch
            said = known.get(errors_of_first_stage(part.place))
            part.told = "" if said is None else said.error
            before = known.get(part.place)
            holds = before is not None and before.target_id == route.target_id
            after = before.next_offset if before is not None and holds else NOTHING_KNOWN
            if position != after:
                await self._say_beginning(part, after, ends[where.partition])
            part.wrapped = part.position
        return list(made.values())

    def _part(self, route: Route, proxy: Proxy, number: int) -> FirstPart:
        return FirstPart(
            where=TopicPartition(route.topic, number),
            topic_id=route.topic_id,
            target=route.target,
            place=Place(self.settings.application, self._source.cluster_id, route.topic, route.topic_id, number),
            target_id=route.target_id,
            proxy=TopicPartition(proxy.name, number),
            proxy_id=proxy.id,
        )

    async def _told(self, part: FirstPart) -> tuple[Position | None, int]:
        """How far the partition is copied by what the proxy topic holds and the second stage has committed."""
        place = proxy_place(self.settings.application, self.destination.cluster_id, part.proxy, part.proxy_id)
        read_to = self.positions.known.get(place)
        told, end = await last_of(
            self.destination,
            part.proxy,
            lambda one: one.place == part.place and one.belongs_with(self.positions.topic_id, part.target_id),
            from_offset=0 if read_to is None else read_to.next_offset,
        )
        known = self.positions.known.get(part.place)
        holds = known is not None and known.target_id == part.target_id
        if told is None or (known is not None and holds and known.next_offset >= told.next_offset):
            return known, end
        return Position(told.next_offset, told.epoch, part.target, part.target_id, now_ms()), end

    async def _say_beginning(self, part: FirstPart, after: int, end: int) -> None:
        """Write where the partition begins; whoever came first with that, its word counts for all."""
        said = self._envelope(part, part.position, part.position, after=after)
        await self.sender.put(part.proxy, written(said, None, time_ms=now_ms()), source=None, mark=NOWHERE)
        await self.sender.flush()
        first = await first_of(self.destination, part.proxy, said.says_the_same, from_offset=end)
        if first is not None and first.first != part.position:
            part.position, part.epoch = first.first, first.epoch

    def _envelope(self, part: FirstPart, first: int, next_offset: int, *, after: int | None = None) -> Envelope:
        return Envelope(part.place, first, next_offset, part.epoch, self.positions.topic_id, part.target_id, after)

    async def changed(self) -> bool:
        """Whether source, destination or proxy topics are others."""
        found = await routes(self.settings, self._source, self.destination)
        told = await self.destination.topics([proxy.name for _, proxy in self._found])
        now = {name: (str(info.id), len(info.partitions)) for name, info in told.items()}
        return found != [route for route, _ in self._found] or any(
            now.get(proxy.name) != (proxy.id, proxy.partitions) for _, proxy in self._found
        )

    async def settle(self, parts: Sequence[FirstPart]) -> None:
        """Go on behind what is in the proxy topic; what is still on its way there will be dropped."""
        await self._own_producer()
        for part in parts:
            told, _ = await self._told(part)
            if told is None:
                raise BadInput(
                    f"{part.where}: its position is gone from {self.settings.positions_topic} and {part.proxy}. "
                    f"Nothing more is copied; say with start-from where to begin anew."
                )
            part.position = part.wrapped = told.next_offset
            part.epoch = told.epoch

    def topics(self) -> set[str]:
        """The proxy topics."""
        return {proxy.name for _, proxy in self._found}

    def target_of(self, part: FirstPart) -> TopicPartition | None:
        """That of the same number in the proxy topic."""
        return part.proxy

    def form(self, part: FirstPart) -> Form:
        """Batches exactly as the source holds them: the second stage takes from them what it needs."""
        del part
        return _as_they_are

    async def forward(self, part: FirstPart, verdict: Forward, put: Put) -> None:
        """Send the batches, several in one record."""
        limit = part.limit_bytes or CHUNK_BYTES
        chunk: list[Batch | OldBatch] = []
        size = 0
        for batch in verdict.items:
            if isinstance(batch, Blank):
                continue
            if chunk and size + batch.size > limit:
                if not await self._wrap(part, chunk, put):
                    return
                chunk, size = [], 0
            chunk.append(batch)
            size += batch.size
        if chunk and not await self._wrap(part, chunk, put):
            return
        part.position, part.epoch = verdict.next_offset, verdict.source_epoch

    async def _wrap(self, part: FirstPart, chunk: Sequence[Batch | OldBatch], put: Put) -> bool:
        last = chunk[-1]
        if isinstance(last, Batch):
            part.epoch = last.leader_epoch
        envelope = self._envelope(part, part.wrapped, last.next_offset)
        batch = written(envelope, b"".join(one.raw for one in chunk), time_ms=now_ms())
        if not await put(part.proxy, batch, Mark(part.wrapped, part.wrapped), len(chunk)):
            return False
        part.wrapped = last.next_offset
        return True

    async def enlist(self, producer: Producer, targets: Collection[TopicPartition]) -> None:
        """Nothing: there is no transaction."""

    async def commit(
        self, sender: Sender, added: set[TopicPartition], changed: Sequence[tuple[FirstPart, str]]
    ) -> None:
        """Tell of offsets without records too, and wait until all is in the proxy topic."""
        del added
        for part, error in changed:
            if part.wrapped < part.position:
                envelope = self._envelope(part, part.wrapped, part.position)
                mark = Mark(part.wrapped, part.wrapped)
                await sender.put(part.proxy, written(envelope, None, time_ms=now_ms()), source=part.where, mark=mark)
                part.wrapped = part.position
            if error != part.told:
                await self._tell(part, error)
        await sender.flush()

    async def _tell(self, part: FirstPart, error: str) -> None:
        """For the status; what cannot be written down is in the log all the same."""
        with suppress(TwinlogError):
            await self._write(part.records(error))

    async def _write(self, found: dict[Place, Position]) -> None:
        told = await produce_batch(self.destination, self.positions.where, bytes(encoded(found).raw))
        codes.check(told.error, f"{self.positions.where} could not be written on the {self.destination}")

    def halt(self, part: FirstPart, mark: Mark) -> None:
        """Nothing behind what is wrapped is on its way."""
        part.position = part.wrapped = mark.offset
        part.epoch = -1

    def is_before(self, part: FirstPart, mark: Mark) -> bool:
        """By offset."""
        return part.position < mark.offset

    def lacking(self, part: FirstPart, first: int) -> str:
        """Nothing is skipped by itself."""
        return lost_by_retention(part, first)

    def named(self, part: FirstPart, refusal: Refusal) -> tuple[TopicPartition, str]:
        """The partition itself, refused by its proxy topic."""
        del refusal
        return part.where, part.proxy.topic


def _as_they_are(items: Iterable[Data | Blank], position: int, where: TopicPartition) -> tuple[Batch | Blank, ...]:
    del position, where
    # Old formats too: only their bytes are carried.
    return tuple(cast("Batch", item.batch) if isinstance(item, Data) else item for item in items)
