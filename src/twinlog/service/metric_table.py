"""Every metric of a worker: what `/metrics` gives, and what the reference page lists, are both made from this table."""

from enum import Enum
from typing import NamedTuple

PARTITION = ("mirror", "topic", "partition")
MOST_PARTITIONS = 10_000
"""Of more partitions than this only the sums of each topic are told: a label set must not grow without end."""


class Kind(Enum):
    """How a reader treats the values."""

    GAUGE = "gauge"
    COUNTER = "counter"


class Metric(NamedTuple):
    """One row; `name` is what a scrape shows, `kip` the name in KIP-1279 where there is one."""

    name: str
    kind: Kind
    unit: str
    labels: tuple[str, ...]
    doc: str
    kip: str = ""


def _gauge(name: str, unit: str, labels: tuple[str, ...], doc: str, kip: str = "") -> Metric:
    return Metric(f"twinlog_{name}", Kind.GAUGE, unit, labels, doc, kip)


def _counter(name: str, unit: str, labels: tuple[str, ...], doc: str, kip: str = "") -> Metric:
    return Metric(f"twinlog_{name}_total", Kind.COUNTER, unit, labels, doc, kip)


WORKER = (
    _gauge("worker_info", "", ("worker", "version", "cluster_id"), "Always 1; the labels say which worker this is."),
    _gauge(
        "lease_remaining_seconds", "seconds", (), "For how long the lease is still good; 0 or less: it has run out."
    ),
    _gauge("lease_age_seconds", "seconds", (), "Since the last renewal of the lease began."),
    _gauge("shards_owned", "shards", (), "Shards that this worker owns."),
    _gauge("partitions_left_out", "partitions", (), "Partitions of which only the sums of their topic are told."),
    _counter(
        "topic_metadata_refresh_errors",
        "errors",
        ("mirror",),
        "Refreshes of a mirror that did not succeed.",
        "TopicMetadataRefreshError",
    ),
    _counter(
        "topic_config_sync_errors",
        "errors",
        ("mirror",),
        "Topics whose configs could not be synced, and syncs that failed as a whole.",
        "TopicConfigSyncError",
    ),
    _counter(
        "consumer_group_offset_sync_errors",
        "errors",
        ("mirror",),
        "Groups whose offsets could not be synced, and syncs that failed as a whole.",
        "ConsumerGroupOffsetSyncError",
    ),
    _counter(
        "source_throttle_milliseconds",
        "ms",
        ("mirror",),
        "For how long the source's quotas have held back this worker's fetching.",
    ),
    _counter(
        "destination_throttle_milliseconds",
        "ms",
        (),
        "For how long the destination's quotas have held back this worker's writing of data.",
    ),
    _counter(
        "share_group_offset_sync_errors",
        "errors",
        ("mirror",),
        "Share groups whose start offsets could not be synced, and syncs that failed as a whole.",
        "ShareGroupOffsetSyncError",
    ),
    _counter(
        "acl_sync_errors",
        "errors",
        ("mirror",),
        "ACLs that could not be made, deleted or given, and syncs that failed as a whole.",
        "AclSyncError",
    ),
    _gauge(
        "partitions",
        "partitions",
        ("state",),
        "Partitions of this worker in each state.",
        "LogAlignmentPartitionState, MirroringPartitionState, PausingPartitionState, PausedPartitionState, "
        "StoppingPartitionState, StoppedPartitionState, FailedPartitionState",
    ),
    _gauge(
        "failed_partitions", "partitions", (), "Partitions of this worker that are FAILED.", "FailedPartitionsCount"
    ),
    _gauge("mirror_topics", "topics", ("mirror",), "Topics of a mirror in the state.", "MirrorTopicCount"),
    _gauge("max_lag_records", "records", (), "The largest lag of a partition of this worker.", "MaxLag"),
    _gauge(
        "min_fetch_rate",
        "requests/s",
        (),
        "The lowest rate of fetch requests of a fetcher, between the last two scrapes that were a second apart.",
        "MinFetchRate",
    ),
    _gauge(
        "dead_tasks",
        "tasks",
        (),
        "Fetchers and supervisors of partitions that have ended and should not have.",
        "DeadThreadCount",
    ),
)

PARTITIONS = (
    _gauge("lag_records", "records", PARTITION, "Offsets that the source has decided and the destination lacks."),
    _gauge("lag_bytes", "bytes", PARTITION, "Estimate: the lag in records times the mean size of those copied so far."),
    _gauge(
        "lag_milliseconds", "ms", PARTITION, "For how long the source has had what the destination lacks, to a second."
    ),
    _gauge("still_seconds", "seconds", PARTITION, "The source has more, and for so long nothing of it was copied."),
    _gauge("source_silent_seconds", "seconds", PARTITION, "Since the source last said anything of the partition."),
    _gauge("last_append_age_seconds", "seconds", PARTITION, "Since something was appended; absent: nothing was."),
    _counter("copied_records", "records", PARTITION, "Records appended to the destination."),
    _counter("copied_batches", "batches", PARTITION, "Batches appended to the destination."),
    _counter("copied_bytes", "bytes", PARTITION, "Bytes of these batches, as they are in the log."),
    _counter("blanks", "offsets", PARTITION, "Offsets filled by blanks."),
    _counter("refused_appends", "plans", PARTITION, "Appends that the destination refused."),
    _counter("takeovers", "takeovers", PARTITION, "How often the destination's log was read to begin, or again."),
    _counter("retries", "retries", PARTITION, "Trouble after which it was tried again, in the same run."),
    _gauge("retry_attempt", "retries", PARTITION, "The record's retryAttempt; -1: only an operator can help."),
)

TABLE = (*WORKER, *PARTITIONS)
BY_NAME = {metric.name: metric for metric in TABLE}
SUMMED = {
    metric.name: metric._replace(name=metric.name.replace("twinlog_", "twinlog_topic_", 1), labels=("mirror", "topic"))
    for metric in PARTITIONS
    if metric.kind is Kind.COUNTER or metric.name in {"twinlog_lag_records", "twinlog_lag_bytes"}
}
"""What stands in for the partitions that are left out."""


def reference() -> str:
    """The table as the reference page shows it."""
    lines = ["| metric | type | unit | labels | meaning | in KIP-1279 |", "|---|---|---|---|---|---|"]
    for metric in (*TABLE, *SUMMED.values()):
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        doc = f"Sum over the partitions left out: {metric.doc}" if metric in SUMMED.values() else metric.doc
        cells = (f"`{metric.name}`", metric.kind.value, metric.unit, labels, doc, metric.kip)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
