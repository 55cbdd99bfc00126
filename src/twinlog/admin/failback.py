"""Failback: whether a topic that was mirrored the other way, or beside this one, can follow its twin as it is."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from twinlog.admin.divergence import Side, Tail, diverged_tails, shared_until, tail_of
from twinlog.control.image import Image
from twinlog.errors import TopicAlreadyExists, TwinlogError
from twinlog.names import TopicPartition
from twinlog.sync.topics import Span
from twinlog.wire.cluster import Cluster, TopicInfo

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Diverged:
    """A topic whose destination has what the source never saw (`tails`).

    `unknown`: the whole logs of its other partitions of which nobody recorded what both sides share.
    """

    topic: str
    tails: tuple[Tail, ...]
    unknown: tuple[Tail, ...] = ()

    @property
    def to_save(self) -> tuple[Tail, ...]:
        """What would be lost if the destination's topic were deleted, by partition."""
        return tuple(sorted((*self.tails, *self.unknown), key=lambda tail: tail.where))


async def find_diverged(
    clusters: tuple[Cluster, Cluster],
    states: tuple[Image | str, Image],
    topics: Collection[tuple[TopicInfo, TopicInfo]],
    spans: Mapping[TopicPartition, Span],
) -> dict[str, Diverged | TwinlogError]:
    """Return the topics whose destination has what the source never saw, or why that cannot be told now.

    `clusters` and `states` are those of source and destination, `topics` pairs of the topic on both, and `spans` the
    destination's logs. A source whose state does not exist, or may not be read, has nothing to tell: what is judged
    here by what is recorded is compared by the worker anyway, before it writes.
    """
    theirs, image = states
    theirs = Image() if isinstance(theirs, str) else theirs
    found: dict[str, Diverged | TwinlogError] = {}
    for there, here in topics:
        source = Side(clusters[0].cluster_id, theirs, there.id)
        destination = Side(clusters[1].cluster_id, image, here.id)
        wanted = [TopicPartition(here.name, number) for number in sorted(here.partitions)]
        shared = {where: shared_until(source, destination, where) for where in wanted}
        try:
            tails = await diverged_tails(clusters, shared, spans)
            unknown = [where for where in wanted if shared[where].until < 0 and where in spans] if tails else []
            whole = [
                await tail_of(clusters[1], where, spans[where].start, spans[where].end)
                for where in unknown
                if spans[where].start < spans[where].end
            ]
        except TwinlogError as problem:
            found[here.name] = problem
            continue
        if tails:
            found[here.name] = Diverged(here.name, tuple(tails), tuple(whole))
    return found


def shared_offsets(
    clusters: tuple[Cluster, Cluster],
    states: tuple[Image | str, Image],
    topics: Collection[tuple[TopicInfo, TopicInfo]],
) -> dict[str, tuple[int, ...]]:
    """Return up to where both sides of each topic share something, by partition; arguments as `find_diverged`'s."""
    theirs, image = states
    theirs = Image() if isinstance(theirs, str) else theirs
    known: dict[str, tuple[int, ...]] = {}
    for there, here in topics:
        source = Side(clusters[0].cluster_id, theirs, there.id)
        destination = Side(clusters[1].cluster_id, image, here.id)
        parts = [TopicPartition(here.name, number) for number in sorted(here.partitions)]
        known[here.name] = tuple(shared_until(source, destination, where).until for where in parts)
    return known


def refusal(diverged: Diverged) -> TopicAlreadyExists:
    """The error of a start that nobody asked to recreate the topic."""
    topic, tails = diverged.topic, diverged.tails
    shown = "; ".join(map(str, tails[:SHOWN]))
    more = f"; and {len(tails) - SHOWN} more partitions" if len(tails) > SHOWN else ""
    firsts = ",".join(f"{tail.where.partition}:{tail.first}" for tail in diverged.to_save)
    return TopicAlreadyExists(
        f"Topic '{topic}' has a diverged tail at the destination, which the source never saw: {shown}{more}. A log's "
        f"end cannot be cut. Start it with --on-divergence recreate --salvage-dir FOLDER, which saves the tail, "
        f"deletes the topic at the destination and mirrors it anew; or do it by hand: twinlog salvage --save FOLDER "
        f"--bootstrap-server HOST:PORT --topic {topic} --from {firsts}, delete the topic, start it."
    )
