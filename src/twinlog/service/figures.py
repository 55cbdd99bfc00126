"""The progress that a worker publishes, shard by shard; at most `REPEAT_S` old while the worker lives.

What has not changed is not said again so often: the worker's own record, which it writes once a second, names the
shards whose figures are still so. Those of a source that is silent are not among them.
"""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from twinlog.control.records import Change, Figure, ProgressRecord, topics_life
from twinlog.control.sharding import shard_of
from twinlog.relay.partition import PartitionRelay
from twinlog.service.shards import Shards
from twinlog.service.supervisor import Supervisor

# What cannot be told to be so still is published again after this, so that its age stays below five seconds.
REPEAT_S = 3.0
# What can is said again for those who read it when the worker's record is gone already, or names the shard no more:
# they see it so much older than it is, at most.
REPEAT_FRESH_S = 9.0


class Figures:
    """Collects what has changed since it was published last."""

    def __init__(self, worker: str, shards_count: int) -> None:
        self._worker = worker
        self._count = shards_count
        self._published: dict[int, tuple[tuple[Figure, ...], float]] = {}
        self.shards: Shards | None = None
        # The wall clock's time at which the published figures of these shards were so, as of the last `due`.
        self.fresh: tuple[int, tuple[int, ...]] = (0, ())

    def due(self) -> Sequence[Change]:
        """Records to publish now."""
        if self.shards is None:
            return ()
        by_shard: dict[int, list[Figure]] = defaultdict(list)
        now = time.monotonic()
        # A source that says nothing any more must not look as if it had just spoken.
        told_at: dict[int, float] = {}
        for supervisor in self.shards.supervisors:
            relay = supervisor.relay
            position = -1 if relay is None else relay.position
            if relay is None or position < 0:
                continue
            shard = shard_of(supervisor.mirror, supervisor.topic, supervisor.partition, self._count)
            by_shard[shard].append(_figure(supervisor, relay, position))
            if 0 <= relay.figures.told_at < told_at.get(shard, now):
                told_at[shard] = relay.figures.told_at
        return self._chosen(by_shard, {shard: now - at for shard, at in told_at.items()}, now)

    def _chosen(
        self, by_shard: Mapping[int, list[Figure]], ages_s: Mapping[int, float], now: float
    ) -> Sequence[Change]:
        """What of the present figures is to be published; notes those that are published and still so."""
        wall_ms = time.time_ns() // 1_000_000
        due: list[Change] = []
        fresh: dict[int, float] = {}
        published, self._published = self._published, {}
        for shard, figures in by_shard.items():
            told, at = published.get(shard, ((), float("-inf")))
            current, age_s = tuple(figures), ages_s.get(shard, 0.0)
            if current != told or now - at >= (REPEAT_S if age_s >= REPEAT_S else REPEAT_FRESH_S):
                at = now
                due.append(ProgressRecord(shard, self._worker, wall_ms - int(age_s * 1000), current))
            elif age_s < REPEAT_S:
                fresh[shard] = age_s
            self._published[shard] = (current, at)
        self.fresh = (wall_ms - int(max(fresh.values(), default=0.0) * 1000), tuple(fresh))
        return due


def _figure(supervisor: Supervisor, relay: PartitionRelay, position: int) -> Figure:
    source = relay.figures
    waiting = source.high_watermark > source.last_stable_offset >= 0 and position >= source.last_stable_offset
    return Figure(
        supervisor.mirror,
        supervisor.topic,
        supervisor.partition,
        source.log_start_offset,
        source.high_watermark,
        source.last_stable_offset,
        relay.destination_start,
        relay.confirmed,
        waiting,
        topics_life(relay.claim.source_topic_id, relay.claim.destination_topic_id),
    )
