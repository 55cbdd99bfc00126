"""Judges records of a compacted topic that stand on one side only: compacted away on the other, or missing there.

Each cluster's cleaner works when it likes, so two right twins of a compacted topic rarely hold the same records. A
record that one side lacks is *compacted*, and no difference, when

* the side that lacks it has a later record of the same key: that is what a cleaner removes a record for; or
* on neither side the key's last record has a value: it is absent, or a tombstone, which a cleaner removes in time.

Whatever builds its state from the topic then has the same state from either side. A record without a key is never
compacted away (`Cleaner.shouldRetainRecord` drops it only at once), so that one is always a difference.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from twinlog.batch.compare import Difference, Kind
from twinlog.batch.records import Record

MOST_DOUBTS: Final = 250_000
"""Doubtful records that are kept until both logs are read again for them; some 100 MB with keys of usual size."""


class Doubt(NamedTuple):
    """A record that one side lacks: LOST, the destination does; EXTRA, the source does."""

    kind: Kind
    offset: int
    key: bytes

    @classmethod
    def of(cls, difference: Difference) -> "Doubt | None":
        """Return the doubt that a difference of a compacted topic leaves, None when there is none."""
        record = {Kind.LOST: difference.source, Kind.EXTRA: difference.destination}.get(difference.kind)
        if record is None or record.key is None:
            return None
        return cls(difference.kind, difference.offset, record.key)


@dataclass(slots=True)
class _Last:
    """What one side holds of a key: the last offset of all, and whether the last one compared has a value."""

    offset: int = -1
    valued: bool = False


class KeyHistory:
    """What one side says of the keys in doubt, fed with all its records in offset order.

    `end` is where the comparison ends; what lies behind may have removed records, but is no state of both sides yet.
    """

    def __init__(self, keys: Iterable[bytes], end: int) -> None:
        self._keys = {key: _Last() for key in keys}
        self._end = end

    def feed(self, records: Iterable[Record]) -> None:
        """Take in the next records."""
        keys = self._keys
        for offset, _, key, value, _ in records:
            last = keys.get(key) if key is not None else None
            if last is None:
                continue
            last.offset = offset
            if offset < self._end:
                last.valued = value is not None

    def later_than(self, doubt: Doubt) -> bool:
        """Whether this side has a later record of the key."""
        return self._keys[doubt.key].offset > doubt.offset

    def valued(self, doubt: Doubt) -> bool:
        """Whether the key has a value at the end of the comparison."""
        return self._keys[doubt.key].valued


def is_compacted(doubt: Doubt, source: KeyHistory, destination: KeyHistory) -> bool:
    """Say whether compaction explains that one side lacks the record."""
    lacking = destination if doubt.kind is Kind.LOST else source
    return lacking.later_than(doubt) or not (source.valued(doubt) or destination.valued(doubt))
