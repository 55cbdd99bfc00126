"""What a worker does, as numbers: looked at on the event loop, written out as Prometheus text elsewhere.

Nothing is counted here. A scrape reads the integers that the parts keep anyway.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from twinlog.control.image import Image
from twinlog.control.lifecycle import PartitionState
from twinlog.relay.destination import Destination
from twinlog.relay.lease import LEASE_S, Lease
from twinlog.service.discovery import Discovery
from twinlog.service.metric_table import BY_NAME, MOST_PARTITIONS, SUMMED, Kind
from twinlog.service.metric_table import Metric as MetricRow
from twinlog.service.shards import Shards
from twinlog.service.sources import Sources
from twinlog.service.supervisor import Supervisor

log = logging.getLogger("twinlog.partition")

KNOWN = {**BY_NAME, **{metric.name: metric for metric in SUMMED.values()}}

# One look a second: lag in time is told to a second, and the ends of ten minutes are kept.
LOOK_EVERY_S = 1.0
ENDS_KEPT = 600
# Promised are 30 s.
NAMED_AFTER_S = 20.0
MEANT_TO_MOVE = {PartitionState.LOG_ALIGNMENT, PartitionState.MIRRORING, PartitionState.FAILED}

Sample = tuple[str, tuple[str, ...], float]
"""Metric, values of its labels, value."""


@dataclass(slots=True)
class _Seen:
    """Where a partition was at the last look; `ends` are the source's ends that it lacks, with when each was seen."""

    ends: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=ENDS_KEPT))
    position: int = -1
    end: int = -1
    moved_at: float = 0.0
    named: bool = False
    relay: object = None
    relay_since: float = 0.0

    @property
    def lacks(self) -> bool:
        """Whether the source has more."""
        return self.end > self.position >= 0


class Sights:
    """Looks at all partitions once a second, and so knows since when each lags or stands still."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, int], _Seen] = {}

    def look(self, supervisors: Iterable[Supervisor], now: float) -> None:
        """Note where each partition is now, and name once each that stands still."""
        seen: dict[tuple[str, str, int], _Seen] = {}
        for one in supervisors:
            key = (one.mirror, one.topic, one.partition)
            sight = seen[key] = self._seen.get(key) or _Seen(moved_at=now, relay_since=now)
            _note(sight, one, now)
            if now - sight.moved_at >= NAMED_AFTER_S and not sight.named:
                sight.named = True
                log.warning(
                    "%s of mirror %s: stands still at offset %d for %.0f s in state %s, although the source has more, "
                    "up to offset %d. %s",
                    one.where,
                    one.mirror,
                    sight.position,
                    now - sight.moved_at,
                    one.state.name,
                    sight.end,
                    one.record.error or "Lines before this one may say why.",
                )
        self._seen = seen

    def lag_s(self, one: Supervisor, now: float) -> float:
        """For how long the source has had something that the destination lacks."""
        sight = self._seen.get((one.mirror, one.topic, one.partition))
        position = -1 if one.relay is None else one.relay.position
        since = next((at for at, end in sight.ends if end > position), now) if sight is not None else now
        return max(0.0, now - since)

    def still_s(self, one: Supervisor, now: float) -> float:
        """For how long nothing has moved although the source has more."""
        sight = self._seen.get((one.mirror, one.topic, one.partition))
        return 0.0 if sight is None else max(0.0, now - sight.moved_at)

    def heard_at(self, one: Supervisor, now: float) -> float:
        """When the partition's source last answered, or was begun to be asked; now where nothing is asked of it."""
        if one.relay is not None and not one.relay.asks_source:
            return now
        told_at = -1.0 if one.relay is None else one.relay.figures.told_at
        if told_at >= 0:
            return max(told_at, one.counts.appended_at)
        sight = self._seen.get((one.mirror, one.topic, one.partition))
        return now if sight is None else sight.relay_since


def _note(sight: _Seen, one: Supervisor, now: float) -> None:
    """Without a relay, as in a retry, what was known before still holds; at rest nothing is meant to move."""
    relay = one.relay
    before = sight.position
    if relay is not sight.relay:
        sight.relay, sight.relay_since = relay, now
    position = -1 if relay is None else relay.position
    if relay is not None and position >= 0:
        sight.position, sight.end = position, relay.figures.last_stable_offset
    if sight.position != before or not sight.lacks or one.state not in MEANT_TO_MOVE:
        sight.moved_at, sight.named = now, False
    while sight.ends and sight.ends[0][1] <= sight.position:
        sight.ends.popleft()
    if sight.lacks and (not sight.ends or sight.ends[-1][1] != sight.end):
        sight.ends.append((now, sight.end))


def lag_of(one: Supervisor) -> int:
    """Offsets that the source has decided and the destination lacks; -1 where either is unknown."""
    relay = one.relay
    if relay is None or relay.position < 0 or relay.figures.last_stable_offset < 0:
        return -1
    return max(0, relay.figures.last_stable_offset - relay.confirmed)


@dataclass(slots=True)
class View:
    """What one incarnation of a worker can be asked about."""

    worker: str
    cluster_id: str
    image: Image
    lease: Lease
    shards: Shards
    sources: Sources
    discovery: Discovery
    destination: Destination
    sights: Sights = field(default_factory=Sights)
    _rounds: tuple[float, Mapping[tuple[str, int, str], int]] = (0.0, {})
    _rate: float = 0.0

    async def watch(self) -> None:
        """Look at all partitions once a second, until cancelled."""
        while True:
            self.sights.look(self.shards.supervisors, now_s())
            await asyncio.sleep(LOOK_EVERY_S)

    def samples(self, now: float) -> list[Sample]:
        """All values now; bounded by MOST_PARTITIONS."""
        supervisors = list(self.shards.supervisors)
        samples = [*self._of_worker(supervisors, now)]
        for one in supervisors[:MOST_PARTITIONS]:
            labels = (one.mirror, one.topic, str(one.partition))
            samples += ((name, labels, value) for name, value in self._of_partition(one, now))
        samples += self._sums(supervisors[MOST_PARTITIONS:], now)
        return samples

    def _of_worker(self, supervisors: list[Supervisor], now: float) -> Iterator[Sample]:
        states = dict.fromkeys(PartitionState, 0)
        for one in supervisors:
            states[one.state] += 1
        left_s = self.lease.remaining_s()
        yield "twinlog_worker_info", (self.worker, _version(), self.cluster_id), 1
        if left_s > float("-inf"):
            yield "twinlog_lease_remaining_seconds", (), left_s
            yield "twinlog_lease_age_seconds", (), LEASE_S - left_s
        yield "twinlog_shards_owned", (), len(self.shards.owned)
        yield "twinlog_partitions_left_out", (), max(0, len(supervisors) - MOST_PARTITIONS)
        for state, count in states.items():
            yield "twinlog_partitions", (state.name,), count
        yield "twinlog_failed_partitions", (), states[PartitionState.FAILED]
        for mirror in self.image.mirrors:
            yield "twinlog_mirror_topics", (mirror,), sum(1 for _ in self.image.topics_of(mirror))
            yield from self._sync_errors(mirror)
        for mirror, source in self.sources.connected.items():
            yield "twinlog_source_throttle_milliseconds_total", (mirror,), source.throttled_ms
        yield "twinlog_destination_throttle_milliseconds_total", (), self.destination.throttled_ms
        yield "twinlog_max_lag_records", (), max((lag_of(one) for one in supervisors), default=0)
        yield "twinlog_min_fetch_rate", (), self._fetch_rate(now)
        dead = sum(source.dead for source in self.sources.connected.values())
        yield "twinlog_dead_tasks", (), dead + sum(one.ended for one in supervisors)

    def _sync_errors(self, mirror: str) -> Iterator[Sample]:
        syncs, refreshes = self.discovery.coordinator, self.discovery.errors.get(mirror, 0)
        if syncs is not None:
            refreshes += syncs.topic_metadata_refresh_errors[mirror]
            yield "twinlog_topic_config_sync_errors_total", (mirror,), syncs.topic_config_sync_errors[mirror]
            groups = syncs.consumer_group_offset_sync_errors[mirror]
            yield "twinlog_consumer_group_offset_sync_errors_total", (mirror,), groups
            shares = syncs.share_group_offset_sync_errors[mirror]
            yield "twinlog_share_group_offset_sync_errors_total", (mirror,), shares
            yield "twinlog_acl_sync_errors_total", (mirror,), syncs.acl_sync_errors[mirror]
        yield "twinlog_topic_metadata_refresh_errors_total", (mirror,), refreshes

    def _fetch_rate(self, now: float) -> float:
        at, before = self._rounds
        if now - at >= LOOK_EVERY_S:
            connected = self.sources.connected.items()
            rounds = {(m, *key): count for m, source in connected for key, count in source.rounds.items()}
            self._rate = min(((rounds[k] - before[k]) / (now - at) for k in rounds.keys() & before.keys()), default=0.0)
            self._rounds = (now, rounds)
        return self._rate

    def _of_partition(self, one: Supervisor, now: float) -> Iterator[tuple[str, float]]:
        counts, lag = one.counts, lag_of(one)
        if lag >= 0:
            yield "twinlog_lag_records", lag
            if counts.records or not lag:
                yield "twinlog_lag_bytes", lag * counts.size / max(1, counts.records)
            yield "twinlog_lag_milliseconds", int(1000 * self.sights.lag_s(one, now))
        yield "twinlog_still_seconds", self.sights.still_s(one, now)
        if one.relay is not None and one.relay.figures.told_at >= 0:
            yield "twinlog_source_silent_seconds", max(0.0, now - one.relay.figures.told_at)
        if counts.appended_at >= 0:
            yield "twinlog_last_append_age_seconds", max(0.0, now - counts.appended_at)
        yield "twinlog_copied_records_total", counts.records
        yield "twinlog_copied_batches_total", counts.batches
        yield "twinlog_copied_bytes_total", counts.size
        yield "twinlog_blanks_total", counts.blanks
        yield "twinlog_refused_appends_total", counts.refused
        yield "twinlog_takeovers_total", counts.takeovers
        yield "twinlog_retries_total", counts.retries
        yield "twinlog_retry_attempt", one.record.retry_attempt

    def _sums(self, left_out: list[Supervisor], now: float) -> list[Sample]:
        sums: dict[tuple[str, tuple[str, ...]], float] = {}
        for one in left_out:
            for name, value in self._of_partition(one, now):
                if name in SUMMED:
                    key = (SUMMED[name].name, (one.mirror, one.topic))
                    sums[key] = sums.get(key, 0.0) + value
        return [(name, labels, value) for (name, labels), value in sums.items()]


def exposition(samples: Iterable[Sample], known: Mapping[str, MetricRow] = KNOWN) -> bytes:
    """Samples of `known` metrics, and what is known of the process, as Prometheus text; may run in any thread."""
    registry = CollectorRegistry()
    registry.register(_Given(samples, known))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return generate_latest(registry)


class _Given(Collector):
    """Gives what was collected before."""

    def __init__(self, samples: Iterable[Sample], known: Mapping[str, MetricRow]) -> None:
        self._samples = samples
        self._known = known

    def collect(self) -> Iterable[Metric]:
        """One family for each metric that has a value."""
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for name, labels, value in self._samples:
            if name not in families:
                row = self._known[name]
                family = CounterMetricFamily if row.kind is Kind.COUNTER else GaugeMetricFamily
                families[name] = family(name, row.doc, labels=row.labels)
            families[name].add_metric(labels, value)
        return families.values()


def _version() -> str:
    try:
        return version("twinlog")
    except PackageNotFoundError:
        return "unknown"


def now_s() -> float:
    """The clock that the relay's own times are told on."""
    return time.monotonic()
