"""What a record of the proxy topic holds: batches of a source partition, as they are, and where they came from. Pure.

The key says which source offsets the record stands for, the value holds the source's batches byte for byte; what is
aborted or a marker is left out. Each writer begins where all before is in the topic already and leaves nothing out, so
the first sight of each offset comes in order, however many write: what a reader has seen it drops, and a record that
begins beyond what it has seen would be a loss.
"""

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from twinlog.batch.records import Record, encode
from twinlog.batch.view import Batch
from twinlog.errors import BadInput
from twinlog.names import TopicPartition
from twinlog.reo.positions import Place

NOTHING_KNOWN: Final = -1
_BEGINNING: Final = re.compile(rb'^\{"twinlog":1,')


@dataclass(frozen=True, slots=True)
class Envelope:
    """All of `place` from offset `first` to before `next_offset`; `epoch` is the leader's at the end of it.

    `positions_id` and `target_id` are the ids of the topics in which position and records are kept: what was written
    for others of the same name counts no more. With `after` it holds no records and says where to begin: at `first`,
    if the position is `after` then (`NOTHING_KNOWN`: none).
    """

    place: Place
    first: int
    next_offset: int
    epoch: int
    positions_id: str
    target_id: str
    after: int | None = None

    @property
    def source(self) -> TopicPartition:
        """The source partition."""
        return TopicPartition(self.place.topic, self.place.partition)

    def belongs_with(self, positions_id: str, target_id: str) -> bool:
        """Whether it was written for these topics."""
        return (self.positions_id, self.target_id) == (positions_id, target_id)

    def says_the_same(self, other: "Envelope") -> bool:
        """Whether both say where to begin, in answer to the same state."""
        kept = (self.place, self.positions_id, self.target_id, self.after)
        return self.after is not None and kept == (other.place, other.positions_id, other.target_id, other.after)


class Means(Enum):
    """What an envelope is to a reader."""

    BEGIN = "the position is its first offset now"
    SEEN = "nothing of it is new"
    TAKE = "it holds what comes next"
    GAP = "offsets before it are missing"
    UNKNOWN = "nobody has said where this source partition begins"


def meaning(envelope: Envelope, reached: int | None, *, positions_id: str, target_id: str) -> Means:
    """What `envelope` is to a reader that has all of its source partition below `reached` (None: no position)."""
    if envelope.after is not None and envelope.belongs_with(positions_id, target_id):
        known = NOTHING_KNOWN if reached is None else reached
        if envelope.after == known and envelope.first != known:
            return Means.BEGIN
    if reached is None:
        return Means.UNKNOWN
    if envelope.next_offset <= reached:
        return Means.SEEN
    return Means.TAKE if envelope.first <= reached else Means.GAP


def written(envelope: Envelope, value: bytes | None, *, time_ms: int) -> Batch:
    """One batch of one record, as it goes into the proxy topic."""
    return encode([Record(0, time_ms, _key(envelope), value)], codec=0)


def _key(envelope: Envelope) -> bytes:
    place = envelope.place
    told: dict[str, Any] = {
        "twinlog": 1,
        "application": place.application,
        "cluster": place.cluster,
        "topic": place.topic,
        "topicId": place.topic_id,
        "partition": place.partition,
        "first": envelope.first,
        "next": envelope.next_offset,
        "epoch": envelope.epoch,
        "positionsId": envelope.positions_id,
        "destinationTopicId": envelope.target_id,
    }
    if envelope.after is not None:
        told["after"] = envelope.after
    return json.dumps(told, separators=(",", ":")).encode()


def read(record: Record, where: TopicPartition) -> Envelope:
    """The envelope of a record of the proxy topic; BadInput for one that this program did not write."""
    try:
        if record.key is None or not _BEGINNING.match(record.key):
            raise ValueError
        told: dict[str, Any] = json.loads(record.key)
        place = Place(told["application"], told["cluster"], told["topic"], told["topicId"], told["partition"])
        return Envelope(
            place,
            told["first"],
            told["next"],
            told["epoch"],
            told["positionsId"],
            told["destinationTopicId"],
            told.get("after"),
        )
    except (ValueError, KeyError, TypeError):
        raise BadInput(
            f"{where} holds at offset {record.offset} a record that is not of this program (perhaps of kafka-reo). "
            f"Give another kafka.clusters.destination.topic-proxy, or delete that topic while nothing uses it."
        ) from None
