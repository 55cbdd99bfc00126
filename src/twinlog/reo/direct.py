"""Direct mode: the source's batches go into a transaction on the destination, with the positions they reach."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from twinlog.batch.view import Batch
from twinlog.errors import BadInput
from twinlog.names import TopicPartition
from twinlog.relay.decide import Form
from twinlog.relay.fetch import Source
from twinlog.relay.progress import Forward
from twinlog.reo.plan import Shape, pieces, wanted
from twinlog.reo.positions import Place, Position, has_begun
from twinlog.reo.sender import Mark, Refusal
from twinlog.reo.settings import Partitioning
from twinlog.reo.stage import InTransactions, Part, Put, Sides, now_ms
from twinlog.reo.topics import Route, routes, starts

log = logging.getLogger("twinlog.reo")


@dataclass(slots=True, eq=False, kw_only=True)
class DirectPart(Part):
    """A source partition; its position is the source's offset."""

    place: Place
    target_id: str
    shape: Shape

    def records(self, error: str) -> dict[Place, Position]:
        """The one position."""
        return {self.place: Position(self.position, self.epoch, self.target, self.target_id, now_ms(), error)}


class Direct(InTransactions[DirectPart]):
    """From the source's topics into the destination's, in one step."""

    name = "direct"

    def __init__(self, sides: Sides, reader: Source) -> None:
        super().__init__(sides, reader)
        self._source = reader.cluster
        self._routes: list[Route] = []

    async def begin(self) -> Sequence[DirectPart]:
        """Take over, find where each partition goes on, and write that down where it is new."""
        found = self._routes = await routes(self.settings, self._source, self.destination)
        await self.take_over()
        known, source = self.known, self._source
        begun = has_begun(self.positions.known, self.settings.application, source.cluster_id)
        parts: list[DirectPart] = []
        for route in found:
            begins = await starts(
                self.settings, route, known, source, self.destination, mine=self.sides.owns, begun=lambda _: begun
            )
            parts += [self._part(route, where, *begin) for where, begin in begins.items()]
        for part in parts:
            before = known.get(part.place)
            part.told = "" if before is None else before.error
        new = [part for part in parts if known.get(part.place) is None or self.settings.start_from]
        if new:
            await self.commit(self.sender, set(), [(part, "") for part in new])
        elif not begun:
            await self.note_beginning(source.cluster_id)
        self.settings = self.settings.once_begun()
        return parts

    def _part(self, route: Route, where: TopicPartition, position: int, epoch: int) -> DirectPart:
        settings, cluster = self.settings, self._source.cluster_id
        return DirectPart(
            where=where,
            topic_id=route.topic_id,
            target=route.target,
            position=position,
            epoch=epoch,
            place=Place(settings.application, cluster, route.topic, route.topic_id, where.partition),
            target_id=route.target_id,
            shape=Shape(
                partitions=route.target_partitions if settings.partitioning is Partitioning.KEY else 0,
                origin=cluster if settings.provenance else "",
                cut=self.destination.cluster_id if settings.provenance else "",
            ),
        )

    async def changed(self) -> bool:
        """Whether the routes are others."""
        return await routes(self.settings, self._source, self.destination) != self._routes

    async def settle(self, parts: Sequence[DirectPart]) -> None:
        """Go on from what is committed; BadInput where that is gone."""
        await self.regain()
        for part in parts:
            known = self.positions.known.get(part.place)
            if known is None:
                raise BadInput(
                    f"{part.where}: its position is gone from {self.settings.positions_topic}. Nothing more is copied; "
                    f"say with start-from where to begin anew."
                )
            if known.target_id != part.target_id:
                raise BadInput(
                    f"{part.where}: its position belongs to another topic {known.target} on the destination."
                )
            part.position, part.epoch, part.told = known.next_offset, known.epoch, known.error

    def topics(self) -> set[str]:
        """Those of the routes."""
        return {route.target for route in self._routes}

    def target_of(self, part: DirectPart) -> TopicPartition | None:
        """That of the same number."""
        return TopicPartition(part.target, part.where.partition) if not part.shape.partitions else None

    def form(self, part: DirectPart) -> Form:
        """Whole batches as they are."""
        return partial(wanted, shape=part.shape, exact=part.limit_bytes is not None)

    async def forward(self, part: DirectPart, verdict: Forward, put: Put) -> None:
        """Send each batch to the partition it belongs to."""
        for batch in verdict.items:
            if isinstance(batch, Batch):
                for piece in pieces(batch, part.where, part.shape, limit_bytes=part.limit_bytes):
                    target = TopicPartition(part.target, piece.partition)
                    if not await put(target, piece.batch, Mark(piece.first, piece.first), 0):
                        return
        part.position, part.epoch = verdict.next_offset, verdict.source_epoch

    def halt(self, part: DirectPart, mark: Mark) -> None:
        """The offset is the position."""
        part.position, part.epoch = mark.offset, -1

    def is_before(self, part: DirectPart, mark: Mark) -> bool:
        """By offset."""
        return part.position < mark.offset

    def lacking(self, part: DirectPart, first: int) -> str:
        """Nothing is skipped by itself."""
        return lost_by_retention(part, first)

    def named(self, part: DirectPart, refusal: Refusal) -> tuple[TopicPartition, str]:
        """The partition itself."""
        del refusal
        return part.where, part.target


def lost_by_retention(part: Part, first: int) -> str:
    """The sentence for offsets of a source that are gone."""
    return (
        f"{part.where}: the source deleted offsets {part.position} to {first - 1} (retention) before they were "
        f"copied. Nothing is skipped by itself: start again with start-from earliest to go on at {first}."
    )
