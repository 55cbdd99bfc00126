"""What the calls of `MirrorAdmin` return. `notes` are sentences for the operator: nothing failed, but worth reading."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from twinlog.admin.divergence import Tail
from twinlog.admin.promotion import Behind
from twinlog.control.describe import PartitionDescription
from twinlog.control.selection import NO_EDITS, Edits
from twinlog.errors import TwinlogError
from twinlog.names import TopicPartition


@dataclass(frozen=True, slots=True)
class CreateMirrorResult:
    """A mirror that exists now; `source_cluster_id` is "" where the source could not be asked from here."""

    mirror: str
    source_cluster_id: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recreated:
    """A diverged topic that was deleted at the destination: what only it had, in which file, and how many replicas."""

    tails: tuple[Tail, ...]
    path: Path
    replication_factor: int


@dataclass(frozen=True, slots=True)
class StartMirrorTopicsResult:
    """What a start did: topics by outcome, each sorted by name.

    `already`: was MIRRORING. `pending`: named, not at the source yet. `excluded`: matched by a regex only, and left out
    by an exclude. `stopped`: was active and matches an exclude now. `failed`: the reason for each topic that was not
    started; the others go on. `recreated`: the diverged topics that were deleted at the destination to be made anew, of
    a dry run those that would be. `live_workers`: how many workers can begin with it. `edits`: which patterns were
    saved (of a dry run: would be). `unmatched`: the names and regexes given that no topic of the source matches.
    """

    mirror: str
    started: tuple[str, ...] = ()
    already: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    failed: Mapping[str, TwinlogError] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    recreated: Mapping[str, Recreated] = field(default_factory=dict)
    live_workers: int = 0
    edits: Edits = NO_EDITS
    unmatched: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StopMirrorTopicsResult:
    """What a stop did: topics by outcome, each sorted by name; `already`: was STOPPED.

    `ends`: the destination's end (the next offset) of each partition that has reached STOPPED; there the mirrored
    records end. `waiting_for`: the partitions that have not. `live_workers`: how many workers can
    stop them. `lags`: how many offsets each partition was behind its source when that was last looked at.

    After a promotion that was refused `behind` says what each topic lacks (its error is in `failed`), `level` names the
    topics that lack nothing; none of them was stopped.

    `acls`: those that were held back while the topics were mirrored, and were given now (a dry run: would be).
    `edits`: which patterns were taken back or saved (a dry run: would be).
    """

    mirror: str
    stopped: tuple[str, ...] = ()
    already: tuple[str, ...] = ()
    failed: Mapping[str, TwinlogError] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    waiting_for: tuple[TopicPartition, ...] = ()
    live_workers: int = 0
    lags: Mapping[TopicPartition, int] = field(default_factory=dict)
    behind: Mapping[str, Behind] = field(default_factory=dict)
    level: tuple[str, ...] = ()
    acls: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    edits: Edits = NO_EDITS


@dataclass(frozen=True, slots=True)
class MoveMirrorTopicsResult:
    """What a pause, resume or recovery did: topics by outcome, each sorted by name.

    `already`: there was nothing to do. `waiting_for`: the partitions that are not PAUSED yet, after a pause.
    """

    mirror: str
    moved: tuple[str, ...] = ()
    already: tuple[str, ...] = ()
    failed: Mapping[str, TwinlogError] = field(default_factory=dict)
    waiting_for: tuple[TopicPartition, ...] = ()
    live_workers: int = 0


@dataclass(frozen=True, slots=True)
class DescribeMirrorsResult:
    """Partitions by mirror, topic and number, and how far their figures can be trusted.

    `figures_age_ms`: the age of the oldest figure of a partition that is being mirrored; -1: there is none.
    `without_figures`: how many such partitions have none at all. `last_mirrored_positions`: up to where (the next
    offset) each partition that is at rest was mirrored from the source cluster that was asked about.
    """

    partitions: tuple[PartitionDescription, ...]
    live_workers: int
    figures_age_ms: int
    without_figures: int
    retry_max_attempts: Mapping[str, int]
    last_mirrored_positions: Mapping[TopicPartition, int] = field(default_factory=dict)
