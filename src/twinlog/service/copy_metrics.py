"""What a copy (`twinlog reo`) does, as numbers, and whether it is well: the same endpoints as the worker's."""

import asyncio
from collections.abc import Iterator
from typing import Any

from twinlog.reo.copier import Copier
from twinlog.reo.sharing import Board
from twinlog.service.http import Endpoints
from twinlog.service.metric_table import MOST_PARTITIONS, Kind, Metric
from twinlog.service.metrics import LOOK_EVERY_S, Sample, exposition, now_s

PARTITION = ("stage", "topic", "partition")
METRICS = (
    Metric("twinlog_reo_position", Kind.GAUGE, "offset", PARTITION, "The next offset that is read of a partition."),
    Metric(
        "twinlog_reo_lag_records",
        Kind.GAUGE,
        "offsets",
        PARTITION,
        "How far that is from the partition's end (stage 2: of the proxy topic, a record of which holds many).",
    ),
    Metric(
        "twinlog_reo_stopped", Kind.GAUGE, "", PARTITION, "1 where something stops the partition; the log says what."
    ),
    Metric(
        "twinlog_reo_too_few_replicas",
        Kind.GAUGE,
        "",
        PARTITION,
        "1 for each partition of the destination that has fewer replicas in sync than min.insync.replicas.",
    ),
    Metric(
        "twinlog_reo_held",
        Kind.GAUGE,
        "shares",
        ("stage",),
        "Shares whose transaction cannot end for that; /readyz and the log say more.",
    ),
    Metric("twinlog_reo_bytes_total", Kind.COUNTER, "bytes", ("stage",), "Batches that were written and committed."),
    Metric("twinlog_reo_rounds_total", Kind.COUNTER, "rounds", ("stage",), "Transactions, or rounds of stage 1."),
    Metric("twinlog_reo_interruptions_total", Kind.COUNTER, "rounds", ("stage",), "Rounds that failed and began anew."),
    Metric("twinlog_reo_shares", Kind.GAUGE, "shares", ("stage",), "Shares that this instance works at."),
)
BY_NAME = {metric.name: metric for metric in METRICS}


class CopyEndpoints(Endpoints):
    """Answers for the copiers on a board."""

    def __init__(self, board: Board) -> None:
        super().__init__()
        self._board = board
        self._looking = asyncio.Lock()
        self._seen: tuple[float, bytes] = (float("-inf"), b"")

    async def _metrics(self) -> bytes:
        """At most one look a second."""
        async with self._looking:
            now = now_s()
            if now - self._seen[0] >= LOOK_EVERY_S:
                self._seen = (now, await asyncio.to_thread(exposition, list(samples(self._board)), BY_NAME))
            return self._seen[1]

    def reasons(self) -> list[str]:
        """Why the copy is not ready: it has not begun, or its last round failed."""
        if self._board.waits_for:
            return [self._board.waits_for]
        return [copier.trouble for copier in self._board.copiers if copier.trouble]


def samples(board: Board) -> Iterator[Sample]:
    """All values at this moment; of very many partitions none is told by itself."""
    stages: dict[str, list[Copier[Any]]] = {}
    for copier in board.copiers:
        stages.setdefault(copier.stage.name, []).append(copier)
    for name, copiers in stages.items():
        label = (name,)
        yield "twinlog_reo_shares", label, len(copiers)
        yield "twinlog_reo_held", label, sum(bool(copier.holdup) for copier in copiers)
        yield "twinlog_reo_bytes_total", label, sum(copier.counts.bytes for copier in copiers)
        yield "twinlog_reo_rounds_total", label, sum(copier.counts.rounds for copier in copiers)
        yield "twinlog_reo_interruptions_total", label, sum(copier.counts.failures for copier in copiers)
        short = {one.where for copier in copiers for one in copier.too_few_replicas()}
        for where in sorted(short)[:MOST_PARTITIONS]:
            yield "twinlog_reo_too_few_replicas", (name, where.topic, str(where.partition)), 1
        facts = [fact for copier in copiers for fact in copier.facts()]
        for fact in facts if len(facts) <= MOST_PARTITIONS else ():
            labels = (name, fact.where.topic, str(fact.where.partition))
            yield "twinlog_reo_position", labels, fact.position
            yield "twinlog_reo_stopped", labels, bool(fact.error)
            if fact.end >= 0:
                yield "twinlog_reo_lag_records", labels, max(0, fact.end - fact.position)
