"""What to do with what was fetched. Everything that can go wrong at the source has a name here."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from twinlog.batch.records import rewritten
from twinlog.batch.scan import Blank, Data, readable
from twinlog.batch.view import Batch
from twinlog.errors import CorruptBatch, PartitionFailed, RefreshLeader, TakeOverAnew, TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.progress import (
    Chunk,
    Fail,
    Fetched,
    FetchRefused,
    Forward,
    Nudge,
    Progress,
    Realign,
    Refetch,
    Stop,
    Verdict,
)
from twinlog.wire import codes

# Set by the fetcher where the broker answered with a diverging epoch (KIP-595).
DIVERGED = -1000
MISSING_RIGHTS = {
    codes.TOPIC_AUTHORIZATION_FAILED: "READ on the source topic",
    codes.CLUSTER_AUTHORIZATION_FAILED: "access to the source cluster",
}
TOPIC_GONE = {codes.UNKNOWN_TOPIC_OR_PARTITION, codes.UNKNOWN_TOPIC_ID, codes.INCONSISTENT_TOPIC_ID}


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for a partition as long as its stream lasts.

    `may_blank` is false where the destination grants no right to write markers (ALTER or CLUSTER_ACTION on the
    cluster). `trust_emptiness` is false where an empty answer of the source need not mean that nothing is there: a read
    from tiered storage that was given up looks the same (`DelayedRemoteFetch`).
    """

    may_blank: bool = True
    trust_emptiness: bool = True


TRUNCATED = "the source was truncated (unclean leader election)"
"""What the reason of such a failure contains: where the mirror says so, its destination is made anew by that."""

ADVICE = (
    "Nothing more is written. Stop the topic and keep the destination as it is, or delete the destination topic and "
    "start it again; with mirror.support.unclean.leader.election=true the mirror does that by itself."
)

Form = Callable[[Iterable[Data | Blank], int, TopicPartition], tuple[Batch | Blank, ...]]
"""Puts what a reader sees from a position on into batches that a broker accepts, and blanks."""


def decide(progress: Progress, fetched: Fetched, terms: Terms, form: Form | None = None) -> Verdict:
    """Judge one fetched value; nothing here changes anything. `form` is `sendable` where none is given."""
    if isinstance(fetched, Chunk):
        return _decide_chunk(progress, fetched, terms, form or sendable)
    if isinstance(fetched, FetchRefused):
        return _decide_refusal(progress, fetched)
    return _decide_nudge(fetched)


def _decide_nudge(nudge: Nudge) -> Verdict:
    return Stop() if nudge.surprise is None else Realign(nudge.surprise)


def _decide_refusal(progress: Progress, refused: FetchRefused) -> Verdict:
    where = progress.where
    if refused.code == codes.OFFSET_OUT_OF_RANGE:
        return Realign(f"{where}: the source does not have offset {progress.position}")
    if refused.code == DIVERGED:
        return Fail(
            f"{where}: {TRUNCATED}: it diverges from what was mirrored at offset {refused.reason}, the mirror stands "
            f"at {progress.position}. {ADVICE}"
        )
    if refused.code in MISSING_RIGHTS:
        right = MISSING_RIGHTS[refused.code]
        return Fail(
            f"{where}: the source cluster refuses the read at offset {progress.position}. "
            f"Grant {right} to the mirror's principal; it is tried again by itself.",
            retriable=True,
        )
    if refused.code in TOPIC_GONE:
        return Realign(f"{where}: the source no longer knows this topic under its recorded id")
    return Refetch(f"{where}: the source answered {refused.reason or refused.code}")


def _decide_chunk(progress: Progress, chunk: Chunk, terms: Terms, form: Form) -> Verdict:
    where, position = progress.where, progress.position
    if chunk.position != position:
        return Realign(f"{where}: fetched from {chunk.position}, but the next offset is {position}")
    if chunk.log_start_offset > position:
        return Realign(f"{where}: the source log now starts at {chunk.log_start_offset}")
    try:
        items, next_offset = _read(chunk, progress, form)
    except CorruptBatch as error:
        return Fail(str(error))
    doubt = _doubt(chunk, next_offset, terms)
    if doubt:
        return Refetch(f"{where}: the source returned {doubt} at offset {position}")
    if not terms.may_blank and any(isinstance(item, Blank) for item in items):
        return _no_right(progress, items)
    return Forward(items, next_offset, chunk.last_epoch)


def _doubt(chunk: Chunk, next_offset: int, terms: Terms) -> str:
    """What of the answer cannot be believed; empty where all can."""
    if next_offset == chunk.position and len(chunk.records):
        return "a cut batch"
    if next_offset > chunk.position and not len(chunk.records) and not terms.trust_emptiness:
        return (
            f"nothing, though its last stable offset is {chunk.last_stable_offset} and it has tiered storage (or the "
            f"topic's configs cannot be read, for want of DESCRIBE_CONFIGS)"
        )
    return ""


def _read(chunk: Chunk, progress: Progress, form: Form) -> tuple[tuple[Batch | Blank, ...], int]:
    scan = readable(
        chunk.records,
        position=chunk.position,
        stable=chunk.last_stable_offset,
        aborted=chunk.aborted,
        where=progress.where,
    )
    if scan.items or len(chunk.records) or not chunk.conclusive or chunk.last_stable_offset <= chunk.position:
        return form(scan.items, chunk.position, progress.where), scan.next_offset
    # Compaction removed everything up to the last stable offset; no batch will ever stand for these offsets.
    blank = Blank(chunk.position, chunk.last_stable_offset - 1)
    return form((blank,), chunk.position, progress.where), chunk.last_stable_offset


def sendable(items: Iterable[Data | Blank], position: int, where: TopicPartition) -> tuple[Batch | Blank, ...]:
    """The same, with each batch in a form that a broker accepts, and a blank wherever a batch has a hole."""
    out: list[Batch | Blank] = []
    for item in items:
        if isinstance(item, Blank):
            add_blank(out, item.first, item.last)
            position = item.last + 1
            continue
        batch = item.batch
        if isinstance(batch, Batch) and batch.whole and not batch.log_append_time and batch.base_offset == position:
            out.append(batch)
            position = batch.next_offset
            continue
        for piece in rewritten(batch, from_offset=position, where=where):
            add_blank(out, position, piece.base_offset - 1)
            out.append(piece)
            position = piece.next_offset
        add_blank(out, position, batch.next_offset - 1)
        position = max(position, batch.next_offset)
    return tuple(out)


def add_blank(out: list[Batch | Blank], first: int, last: int) -> None:
    """Add a blank, joined with one directly before it; an empty one is none."""
    if first > last:
        return
    before = out[-1] if out else None
    if isinstance(before, Blank):
        out[-1] = Blank(before.first, last)
    else:
        out.append(Blank(first, last))


def _no_right(progress: Progress, items: tuple[Batch | Blank, ...]) -> Verdict:
    at, blank = next((n, item) for n, item in enumerate(items) if isinstance(item, Blank))
    if at > 0:
        # What stands before the blank can be mirrored; the next round fails with nothing in its hands.
        return Forward(items[:at], blank.first)
    return Fail(
        f"{progress.where}: offset {progress.position} of the source is a transaction marker, an aborted or a "
        f"compacted record, and the destination grants no right to write markers. Grant ALTER or CLUSTER_ACTION on "
        f"CLUSTER to the worker's principal; it is tried again by itself.",
        retriable=True,
    )


class Stopped(TwinlogError):
    """The pump was asked to end, and nothing is in flight."""


def forwarded(verdict: Verdict) -> Forward:
    """What is to be sent on; every other verdict ends the pump's turning and becomes the error that says how."""
    if isinstance(verdict, Forward):
        return verdict
    if isinstance(verdict, Refetch):
        raise RefreshLeader(verdict.reason)
    if isinstance(verdict, Realign):
        raise TakeOverAnew(verdict.reason)
    if isinstance(verdict, Fail):
        raise PartitionFailed(verdict.reason, retriable=verdict.retriable)
    raise Stopped("asked to stop")
