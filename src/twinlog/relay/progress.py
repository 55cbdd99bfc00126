"""The values that travel round the pump: where a partition is, what was fetched, what shall be sent, what came back.

Progress is spelled by (producer id, epoch, sequence): data of a partition is written under one idempotent producer id.
A run of blanks carries the next epoch, data behind it the one after, from sequence 0. Whatever arrives late or twice
is then recognised or refused by the broker (`ProducerAppendInfo` in Kafka's storage module).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from twinlog.batch.edit import Outgoing, next_sequence
from twinlog.batch.scan import Aborted, Blank
from twinlog.batch.view import Batch
from twinlog.names import TopicPartition

# The epoch is an int16. Two epochs go with each run of blanks; a new producer id is taken well before the end.
LAST_GOOD_EPOCH, LAST_EPOCH = 32_000, 32_700


@dataclass(frozen=True, slots=True)
class Progress:
    """Where one partition stands: everything below `position` is in the destination's log, nothing above it.

    `epoch` and `sequence` are what the next data batch carries; `spent_epoch` is the highest epoch that is in the log
    or was ever sent. `last_timestamp_ms` is the timestamp of the producer's last batch or marker (None: it has none in
    this log), `before_timestamp_ms` that of the one before it; `data_timestamp_ms` that of the last data, which filler
    records take over so that they age with their neighbours.
    """

    where: TopicPartition
    position: int
    producer_id: int
    epoch: int
    sequence: int
    spent_epoch: int
    last_timestamp_ms: int | None = None
    before_timestamp_ms: int | None = None
    data_timestamp_ms: int | None = None
    first_marker: bool = True
    spare_producer_id: int | None = None
    source_epoch: int = -1

    def wants_spare(self, blanks: int) -> bool:
        """Whether a fresh producer id should be at hand, since `blanks` runs of blanks may use the epochs up."""
        return self.spare_producer_id is None and self.spent_epoch + 2 * blanks > LAST_GOOD_EPOCH - 1_000

    @property
    def worn_out(self) -> bool:
        """Whether no run of blanks may be planned any more, for want of epochs and of a spare producer id."""
        return self.spare_producer_id is None and self.spent_epoch >= LAST_EPOCH

    def with_spare(self, producer_id: int) -> "Progress":
        """The same place, with a fresh producer id in reserve."""
        return replace(self, spare_producer_id=producer_id)

    def behind_data(
        self, count: int, last: int, timestamp_ms: int, *, before_ms: int | None = None, source_epoch: int = -1
    ) -> "Progress":
        """Where it stands once a data batch of `count` records that ends at offset `last` is in the log.

        The source's leader epoch belongs to one position, so whoever moves it says the new one, or it is unknown.
        """
        return replace(
            self,
            position=last + 1,
            sequence=next_sequence(self.sequence, count),
            spent_epoch=max(self.spent_epoch, self.epoch),
            last_timestamp_ms=timestamp_ms,
            before_timestamp_ms=before_ms,
            data_timestamp_ms=timestamp_ms,
            source_epoch=source_epoch,
        )

    def short_of(self, plan: "Plan", first: int) -> "Progress":
        """The same place, after `plan` was sent up to the step with offset `first`: the epochs so far are spent."""
        sent = [step for step in plan.steps if isinstance(step, BlankStep) and step.first <= first]
        spent = [step.epoch for step in sent if step.producer_id == self.producer_id]
        return replace(self, spent_epoch=max([self.spent_epoch, *spent]))

    def marker_epoch(self) -> int:
        """The epoch for the next run of blanks."""
        return self.spent_epoch + 1

    def behind_blanks(self, epoch: int, last: int, now_ms: int) -> "Progress":
        """Where it stands once a run of blanks at `epoch` that ends at offset `last` is in the log."""
        behind = replace(
            self,
            position=last + 1,
            epoch=epoch + 1,
            sequence=0,
            spent_epoch=epoch,
            last_timestamp_ms=now_ms,
            before_timestamp_ms=now_ms,
            first_marker=False,
            source_epoch=-1,
        )
        if self.spare_producer_id is None or epoch < LAST_GOOD_EPOCH:
            return behind
        # Only here, right behind a run of our own markers, may the producer id change: they fence all that it had sent.
        return replace(
            behind,
            producer_id=self.spare_producer_id,
            epoch=0,
            spent_epoch=0,
            last_timestamp_ms=None,
            before_timestamp_ms=None,
            spare_producer_id=None,
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """One partition's part of a fetch response, read with read_committed.

    `conclusive` says that the broker would have returned a batch if there were one below `last_stable_offset`: only
    then do empty `records` mean that these offsets hold nothing.
    """

    position: int
    records: memoryview
    aborted: Sequence[Aborted]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    conclusive: bool
    last_epoch: int = -1


@dataclass(frozen=True, slots=True)
class FetchRefused:
    """The source answered with an error for this partition; `reason` is a phrase for the operator."""

    code: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Nudge:
    """Not from the source: somebody asks the pump to end its round.

    `surprise` names what was seen at the destination (read its log again); None means stop in order.
    """

    surprise: str | None = None


Fetched = Chunk | FetchRefused | Nudge


@dataclass(frozen=True, slots=True)
class Forward:
    """Send these on, in offset order (none: nothing decided is there yet).

    `next_offset` is where the source is read on.
    """

    items: tuple[Batch | Blank, ...]
    next_offset: int
    source_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Refetch:
    """Ask the source for its leader again, after a backoff, and read on at the same position."""

    reason: str


@dataclass(frozen=True, slots=True)
class Realign:
    """Read the destination's log again before anything else is written."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fail:
    """This partition cannot go on; `retriable` says whether time alone may help."""

    reason: str
    retriable: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """End in order: nothing is in flight."""


Verdict = Forward | Refetch | Realign | Fail | Stop


class Send(NamedTuple):
    """One data batch.

    With `barrier` it is sent only when everything before it is confirmed. With `acks_all` its acknowledgement has to
    mean that it is confirmed, too: all in-sync replicas have it.
    """

    batch: Outgoing
    barrier: bool
    acks_all: bool = False


@dataclass(frozen=True, slots=True)
class DataStep:
    """Data batches that follow each other without a blank between them."""

    sends: tuple[Send, ...]


@dataclass(frozen=True, slots=True)
class BlankStep:
    """A run of `count` blanks from offset `first`, under `epoch`; with `probe` the log end is read before and after.

    With `at_once` it goes as one aborted transaction, however short it is (`longrun` needs some dozens of offsets).
    """

    first: int
    count: int
    producer_id: int
    epoch: int
    probe: bool
    timestamp_ms: int = 0
    at_once: bool = False


Step = DataStep | BlankStep


@dataclass(frozen=True, slots=True)
class Plan:
    """What shall be written, in offset order, and where the partition stands once all of it is."""

    steps: tuple[Step, ...]
    after: Progress


@dataclass(frozen=True, slots=True)
class Accepted:
    """All of the plan is in the log, at the offsets it was meant for."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker refused something at offset `first` with `code`.

    Every answer is in, so the log holds nothing unknown.
    """

    code: int
    first: int
    size: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """At least one request from offset `first` on has no answer: the log must be read after a settle wait."""

    first: int
    reason: str


@dataclass(frozen=True, slots=True)
class Displaced:
    """Something was acknowledged at `found` that belongs at `expected`: somebody else has written."""

    expected: int
    found: int

    @property
    def first(self) -> int:
        """From which offset on the log is not what was meant."""
        return self.expected


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """The lease ran out before this could be sent; what had been sent is answered."""

    first: int


Answer = Accepted | Refused | Unknown | Displaced | LeaseLost
