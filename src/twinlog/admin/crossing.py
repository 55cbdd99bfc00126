"""Two starts of one topic in opposite directions at the same moment: whoever commits later takes its start back.

Two clusters' states cannot be changed as one, so each start looks at the other side before it commits, and once more
behind that. Both may have looked too early the first time; the second time at least the later one finds the other.
"""

from collections.abc import Collection
from dataclasses import replace

from twinlog.admin import state
from twinlog.admin.loops import find_loops
from twinlog.admin.sources import state_of
from twinlog.control.checks import loop_of
from twinlog.control.commands import Handled, Started
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState
from twinlog.errors import ConcurrentChange, InvalidRequest, RetryLater
from twinlog.state.log import StateLog
from twinlog.wire.cluster import Cluster

MOST_TRIES = 5
"""Each is lost to another command that was committed meanwhile."""


async def undo_crossed(
    sides: tuple[Cluster, Cluster], log: StateLog, judged: Started, *, within_s: float
) -> dict[str, InvalidRequest]:
    """Stop again what was started in the other direction meanwhile, and return the errors of those topics.

    `sides` are source and destination, `log` the destination's state, `judged` what has been committed there.
    """
    source, destination = sides
    try:
        there = await state_of(source, timeout_s=within_s) if judged.started else ""
    except RetryLater:
        return {}  # what is recorded stands; only the rarest of accidents goes unseen
    if isinstance(there, str):
        return {}
    found = await find_loops(source, there, destination.cluster_id, judged.started, upstream=False)
    if not found.ways:
        return {}
    await _undo(destination, log, judged.mirror, found.ways)
    return {
        name: InvalidRequest(
            f"{loop_of(judged.mirror)}. Topic '{name}' was started in the other direction at the same moment, so this "
            f"start was undone. {way}"
        )
        for name, way in found.ways.items()
    }


async def _undo(cluster: Cluster, log: StateLog, mirror: str, topics: Collection[str]) -> None:
    for _ in range(MOST_TRIES):
        try:
            await state.change(cluster, log, lambda image: undone(image, mirror, topics))
        except ConcurrentChange:
            continue
        return
    raise ConcurrentChange(
        f"{loop_of(mirror)}. Topics {', '.join(sorted(topics))} were started in the other direction at the same time, "
        f"and this start could not be undone, since other commands came in between. Stop them in one direction now."
    )


def undone(image: Image, mirror: str, topics: Collection[str]) -> Handled[None]:
    """Stop topics that were started just now; the mirror's patterns stay, since a stopped topic is not discovered."""
    records = [image.topic(mirror, name) for name in sorted(topics)]
    active = (record for record in records if record is not None and record.desired is DesiredState.MIRRORING)
    return Handled(tuple(replace(record, desired=DesiredState.STOPPED) for record in active), None)
