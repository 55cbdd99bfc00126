"""The progress that a worker publishes, shard by shard; at most `REPEAT_S` old while the worker lives."""

import time
from collections import defaultdict
from collections.abc import Sequence

from twinlog.control.records import Change, Figure, ProgressRecord, topics_life
from twinlog.control.sharding import shard_of
from twinlog.service.shards import Shards
from twinlog.service.supervisor import Supervisor

# What has not changed is published again after this, so that its age stays below five seconds.
REPEAT_S = 3.0


class Figures:
    """Collects what has changed since it was published last."""

    def __init__(self, worker: str, shards_count: int) -> None:
        self._worker = worker
        self._count = shards_count
        self._published: dict[int, tuple[tuple[Figure, ...], float]] = {}
        self.shards: Shards | None = None

    def due(self) -> Sequence[Change]:
        """Records to publish now."""
        if self.shards is None:
            return ()
        by_shard: dict[int, list[Figure]] = defaultdict(list)
        now, wall_ms = time.monotonic(), time.time_ns() // 1_000_000
        ages_s: dict[int, float] = defaultdict(float)
        for supervisor in self.shards.supervisors:
            figure = _figure(supervisor)
            if figure is not None:
                shard = shard_of(figure.mirror, figure.topic, figure.partition, self._count)
                by_shard[shard].append(figure)
                # A source that says nothing any more must not look as if it had just spoken.
                ages_s[shard] = max(ages_s[shard], _age_s(supervisor, now))
        due: list[Change] = []
        for shard, figures in by_shard.items():
            told, at = self._published.get(shard, ((), float("-inf")))
            current = tuple(figures)
            if current != told or now - at >= REPEAT_S:
                self._published[shard] = (current, now)
                due.append(ProgressRecord(shard, self._worker, wall_ms - int(ages_s[shard] * 1000), current))
        return due


def _age_s(supervisor: Supervisor, now: float) -> float:
    """For how long the partition's source has said nothing."""
    relay = supervisor.relay
    told_at = -1.0 if relay is None else relay.figures.told_at
    return 0.0 if told_at < 0 else max(0.0, now - told_at)


def _figure(supervisor: Supervisor) -> Figure | None:
    relay = supervisor.relay
    if relay is None or relay.position < 0:
        return None
    source = relay.figures
    waiting = source.high_watermark > source.last_stable_offset >= 0 and relay.position >= source.last_stable_offset
    return Figure(
        mirror=supervisor.mirror,
        topic=supervisor.topic,
        partition=supervisor.partition,
        source_log_start=source.log_start_offset,
        source_high_watermark=source.high_watermark,
        source_stable_offset=source.last_stable_offset,
        destination_log_start=relay.destination_start,
        destination_end=relay.confirmed,
        waiting_for_transaction=waiting,
        life=topics_life(relay.claim.source_topic_id, relay.claim.destination_topic_id),
    )
