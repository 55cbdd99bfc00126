"""Whether workers are alive, and how old what they publish is; by the wall clocks of both machines. Pure."""

from collections.abc import Iterable

from twinlog.control.describe import PartitionDescription
from twinlog.control.image import Image
from twinlog.control.lifecycle import PartitionState
from twinlog.relay.lease import LEASE_S

STALE_MS = int(LEASE_S * 1000) + 1_000
"""A worker writes every second and publishes every three. Its lease is over by then, too: what it is told to stop is
never taken for stopped, since no worker runs, while one that froze may still write.
"""

_AT_REST = frozenset({PartitionState.PAUSED, PartitionState.STOPPED, PartitionState.FAILED})


def live_workers(image: Image, now_ms: int) -> tuple[str, ...]:
    """The workers whose last sign of life is fresh."""
    return tuple(sorted(name for name, record in image.workers.items() if now_ms - record.beat_ms < STALE_MS))


def moving(rows: Iterable[PartitionDescription]) -> list[PartitionDescription]:
    """The partitions whose figures should be fresh: all that are not at rest."""
    return [row for row in rows if row.state not in _AT_REST]
