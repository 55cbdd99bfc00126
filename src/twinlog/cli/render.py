"""Mirrors and partitions as text columns and as JSON, as KIP-1279 prints them. Pure: values in, text out."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from twinlog.control.describe import RENEWED, MirrorListing, PartitionDescription
from twinlog.control.records import SkippedRecord

if TYPE_CHECKING:
    from twinlog.control.mirror_configs import ConfigDescription, MirrorConfigs

MISSING = "-"
ELLIPSIS = "..."
NO_MIRRORS = "No mirrors found"
NO_PARTITIONS = "No mirror partitions found"
NO_FAILED = "No failed partitions found"
NO_SKIPPED = "Nothing was skipped"
SET, DEFAULT = "mirror", "default"
HIDDEN = "[hidden]"
MOST_ERROR = 80


class Column(NamedTuple):
    """A heading and the width of its column."""

    heading: str
    width: int


LIST_COLUMNS = (
    Column("MIRROR", 30),
    Column("TOPICS", 10),
    Column("SOURCE-CLUSTER-ID", 26),
    Column("SOURCE-BOOTSTRAP", 50),
)
_PARTITION_COLUMNS = (Column("MIRROR", 30), Column("TOPIC", 40), Column("PARTITION", 10))
DESCRIBE_COLUMNS = (
    *_PARTITION_COLUMNS,
    Column("SOURCE-OFFSET", 15),
    Column("DESTINATION-OFFSET", 18),
    Column("LAG", 10),
    Column("STATE", 12),
)
SKIPPED_COLUMNS = (Column("MIRROR", 30), Column("KIND", 8), Column("NAME", 60), Column("REASON", 400))
CONFIG_COLUMNS = (Column("MIRROR", 30), Column("KEY", 50), Column("SET-BY", 8), Column("VALUE", 5))
PATTERN_COLUMNS = (
    Column("MIRROR", 30),
    Column("LIST", 8),
    Column("SET-BY", 8),
    Column("TOPICS", 8),
    Column("PATTERN", 40),
    Column("AT-EACH-REFRESH", 15),
)
FAILED_COLUMNS = (*_PARTITION_COLUMNS, Column("RETRY", 7), Column("ERROR", MOST_ERROR))


def table(columns: Sequence[Column], rows: Iterable[Sequence[str | int]]) -> str:
    """Lines of padded cells under their headings; a long cell is shortened from the left, an empty one is `-`."""
    cells = [[_cell(value, column.width) for value, column in zip(row, columns, strict=True)] for row in rows]
    return "\n".join(_line(columns, line) for line in ([column.heading for column in columns], *cells))


def _line(columns: Sequence[Column], cells: Sequence[str]) -> str:
    return " ".join(cell.ljust(column.width) for cell, column in zip(cells, columns, strict=True)).rstrip()


def _cell(value: str | int, width: int) -> str:
    if value in {"", -1}:
        return MISSING
    text = " ".join(str(value).split())
    return text if len(text) <= width else ELLIPSIS + text[len(text) - width + len(ELLIPSIS) :]


def _error(text: str) -> str:
    """One line; of an error the beginning says most, so it is cut on the right."""
    text = " ".join(text.split())
    return text if len(text) <= MOST_ERROR else text[: MOST_ERROR - len(ELLIPSIS)] + ELLIPSIS


def _escaped(name: str) -> str:
    """A name in one line: a group's may hold line breaks and whatever else a terminal would obey."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def list_text(mirrors: Sequence[MirrorListing]) -> str:
    """`--list`."""
    if not mirrors:
        return NO_MIRRORS
    rows = [(m.mirror, str(len(m.topics)), m.source_cluster_id, m.source_bootstrap) for m in mirrors]
    return table(LIST_COLUMNS, rows)


def list_json(mirrors: Sequence[MirrorListing]) -> str:
    """`--list --json`: an array of objects."""
    return _json(
        {
            "mirror": m.mirror,
            "topics": list(m.topics),
            "topicCount": len(m.topics),
            "sourceClusterId": m.source_cluster_id,
            "sourceBootstrap": m.source_bootstrap,
        }
        for m in mirrors
    )


def describe_text(partitions: Sequence[PartitionDescription]) -> str:
    """`--describe`."""
    if not partitions:
        return NO_PARTITIONS
    rows = [
        (p.mirror, p.topic, str(p.partition), p.source_offset, p.destination_offset, p.lag, p.state.name)
        for p in partitions
    ]
    return table(DESCRIBE_COLUMNS, rows)


def failed_text(partitions: Sequence[PartitionDescription], retry_max: Mapping[str, int]) -> str:
    """`--describe --failed`; RETRY is attempt and maximum, `-1` an attempt that only an operator can make."""
    if not partitions:
        return NO_FAILED
    rows = [
        (p.mirror, p.topic, str(p.partition), f"{p.retry_attempt}/{retry_max[p.mirror]}", _error(p.error_message))
        for p in partitions
    ]
    return table(FAILED_COLUMNS, rows)


def renewals(partitions: Sequence[PartitionDescription]) -> list[str]:
    """A sentence for each topic that is PAUSED since it is being made anew: the table has no column for that."""
    return [f"Topic {name}: {RENEWED}" for name in sorted({p.topic for p in partitions if RENEWED in p.error_message})]


def cut_errors(partitions: Sequence[PartitionDescription]) -> list[PartitionDescription]:
    """The failed partitions whose error does not fit into the table: what to do stands at the end of it."""
    return [p for p in partitions if _error(p.error_message) != " ".join(p.error_message.split())]


def describe_json(partitions: Sequence[PartitionDescription]) -> str:
    """`--describe --json`: KIP-1279's fields in its order, then ours."""
    return _json(
        {
            "mirror": p.mirror,
            "topic": p.topic,
            "partition": p.partition,
            "sourceOffset": p.source_offset,
            "destinationOffset": p.destination_offset,
            "lag": p.lag,
            "state": p.state.name,
            "retryAttempt": p.retry_attempt,
            "errorMessage": p.error_message,
            "lastMirrorEpoch": p.last_mirror_epoch,
            "sourceHighWatermark": p.source_high_watermark,
            "sourceLogStartOffset": p.source_log_start_offset,
            "waitingForTransaction": p.waiting_for_transaction,
            "startAt": p.start_at,
            "startOffset": p.start_offset,
        }
        for p in partitions
    )


def skipped_text(records: Sequence[SkippedRecord]) -> str:
    """`--describe --skipped`."""
    rows = [(record.mirror, item.kind, _escaped(item.name), item.reason) for record in records for item in record.items]
    more = [f"{record.mirror}: {record.beyond} more are not listed" for record in records if record.beyond]
    return "\n".join([table(SKIPPED_COLUMNS, rows), *more]) if rows else NO_SKIPPED


def skipped_json(records: Sequence[SkippedRecord]) -> str:
    """`--describe --skipped --json`: an array of objects, one a mirror."""
    return _json(
        {
            "mirror": record.mirror,
            "refreshedMs": record.at_ms,
            "skipped": [{"kind": i.kind, "name": i.name, "reason": i.reason} for i in record.items],
            "notListed": record.beyond,
        }
        for record in records
    )


def configs_text(mirrors: "Sequence[MirrorConfigs]") -> str:
    """`--describe --configs`: the table of configs, then that of patterns; neither is ever shortened."""
    if not mirrors:
        return NO_MIRRORS
    configs = [(m.mirror, c.name, DEFAULT if c.is_default else SET, _value(c)) for m in mirrors for c in m.configs]
    patterns = [
        (m.mirror, p.list.value, DEFAULT if p.is_default else SET, str(len(p.topics)), _escaped(p.pattern), p.effect)
        for m in mirrors
        for p in m.patterns
    ]
    return (
        f"{table(_fitting(CONFIG_COLUMNS, configs), configs)}\n\n{table(_fitting(PATTERN_COLUMNS, patterns), patterns)}"
    )


def configs_json(mirrors: "Sequence[MirrorConfigs]") -> str:
    """`--describe --configs --json`: an array of objects, one a mirror."""
    return _json(
        {
            "mirror": m.mirror,
            "sourceClusterId": m.source_cluster_id,
            "configs": [
                {"name": c.name, "value": c.value, "isDefault": c.is_default, "isSensitive": c.is_sensitive}
                for c in m.configs
            ],
            "patterns": [
                {
                    "pattern": p.pattern,
                    "list": p.list.value,
                    "isDefault": p.is_default,
                    "topics": list(p.topics),
                    "atEachRefresh": p.effect,
                }
                for p in m.patterns
            ],
        }
        for m in mirrors
    )


def _value(config: "ConfigDescription") -> str:
    return HIDDEN if config.value is None else _escaped(config.value)


def _fitting(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> list[Column]:
    """The same columns, as wide as their widest cell."""
    cells = zip(*rows, strict=True)
    widths = [max(map(len, column)) for column in cells] or [0] * len(columns)
    return [Column(c.heading, max(c.width, width)) for c, width in zip(columns, widths, strict=True)]


def _json(objects: Iterable[Mapping[str, object]]) -> str:
    return json.dumps(list(objects), ensure_ascii=False, separators=(",", ":"))


def names(topics: Iterable[str], *, most: int | None = None) -> str:
    """A set of names as Java prints it; with `most`, no more than so many of them, for remarks."""
    everything = sorted(topics)
    shown = everything[:most]
    more = f" and {len(everything) - len(shown)} more" if len(shown) < len(everything) else ""
    return f"[{', '.join(shown)}]{more}"
