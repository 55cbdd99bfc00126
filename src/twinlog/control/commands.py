"""The commands that change mirrors, and their replies, as values; `handle` says what each does."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from uuid import UUID

from twinlog.control.records import NO_TOPIC_ID, Change
from twinlog.control.selection import NO_EDITS, Edits
from twinlog.errors import ClusterMirrorError

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Handled(Generic[R]):
    """What a command comes to: the records to commit, in order, and the reply for after the commit."""

    records: tuple[Change, ...]
    reply: R


@dataclass(frozen=True, slots=True)
class Create:
    """Create a mirror; `source_cluster_id` is "" where the source could not be asked."""

    mirror: str
    configs: Mapping[str, str]
    source_cluster_id: str
    destination_cluster_id: str
    origin: str = "mirror config"


@dataclass(frozen=True, slots=True)
class Created:
    """The mirror exists now."""

    mirror: str


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic found at the source, and what the destination holds under its name.

    `partitions` 0: named, but not there yet. `destination_topic_id` NO_TOPIC_ID: the destination has no such topic.
    `adoptable`: the destination's topic is empty, or known to be the source's twin. `expected_id`: what `--topic-id`
    said. `start_at`, `start_offsets`, `shared_offsets`: as in the topic's record.
    """

    name: str
    source_topic_id: UUID
    partitions: int
    destination_topic_id: UUID = NO_TOPIC_ID
    adoptable: bool = True
    expected_id: UUID | None = None
    start_at: str = ""
    start_offsets: tuple[int, ...] = ()
    shared_offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """Start topics, and remember the patterns for discovery.

    Without include patterns the topics' own names are meant. `reverse` has, for topics whose source gets them from
    this very cluster, by itself or by way of others, the sentences that tell how. `unstarted`: topics found at the
    source, with their ids, that cannot be started now. `anew`: a topic whose destination is made anew (`control.anew`).
    `discovery`: nobody asked for these topics by now, so the lists as they are by then decide, and stay as they are.
    """

    mirror: str
    topics: tuple[FoundTopic, ...]
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    reverse: Mapping[str, str] = field(default_factory=dict)
    unstarted: Mapping[str, UUID] = field(default_factory=dict)
    anew: str = ""
    discovery: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """What a start did: topics by outcome, each sorted by name.

    `already`: was MIRRORING. `pending`: named, not yet at the source, found later by discovery. `excluded`: matched
    by a regex only, and left out by an exclude. `stopped`: was active and matches an exclude now. `edits`: of the
    lists.
    """

    mirror: str
    started: tuple[str, ...]
    already: tuple[str, ...]
    pending: tuple[str, ...]
    excluded: tuple[str, ...]
    stopped: tuple[str, ...]
    failed: Mapping[str, ClusterMirrorError]
    edits: Edits = NO_EDITS


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop topics: `topics` are the destination's that the patterns match, `ids` theirs.

    Without patterns the topics are meant by name.
    """

    mirror: str
    topics: tuple[str, ...]
    patterns: tuple[str, ...] = ()
    ids: Mapping[str, UUID] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stopped:
    """What a stop did: topics by outcome, each sorted by name; `already`: was STOPPED; `edits`: of the lists."""

    mirror: str
    stopped: tuple[str, ...]
    already: tuple[str, ...]
    failed: Mapping[str, ClusterMirrorError]
    edits: Edits = NO_EDITS


@dataclass(frozen=True, slots=True)
class OnTopics:
    """Pause, resume or recover topics: `topics` are the destination's that the patterns match, `ids` theirs.

    Without patterns the topics are meant by name.
    """

    mirror: str
    topics: tuple[str, ...]
    patterns: tuple[str, ...] = ()
    ids: Mapping[str, UUID] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of topics, each sorted by name; `already`: there was nothing to do."""

    mirror: str
    moved: tuple[str, ...]
    already: tuple[str, ...]
    failed: Mapping[str, ClusterMirrorError]


@dataclass(frozen=True, slots=True)
class Alter:
    """Set and remove configs of a mirror; `origin` names where they come from, in messages."""

    mirror: str
    configs: Mapping[str, str]
    removed: tuple[str, ...] = ()
    origin: str = "the command line"


@dataclass(frozen=True, slots=True)
class Altered:
    """The configs that have another value now, by name.

    `reconnects`: workers connect to the source anew. `stopped`: topics that were active and match an exclude now.
    """

    mirror: str
    changed: tuple[str, ...]
    reconnects: bool
    stopped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a mirror; its topics at the destination stay."""

    mirror: str


@dataclass(frozen=True, slots=True)
class Deleted:
    """The mirror is gone, and these topics belong to no mirror any more."""

    mirror: str
    topics: tuple[str, ...]
