"""One step that records take, as the copier sees it: what is read, how it is sent on, and what is written down of it.

Direct mode is one such step. With a proxy topic there are two: the first writes into that topic, the second reads it.
"""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from twinlog.batch.view import Batch
from twinlog.errors import GiveWay, RetryLater, TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.decide import Form
from twinlog.relay.fetch import Source
from twinlog.relay.inbox import Inbox
from twinlog.relay.progress import Forward, Progress
from twinlog.reo.positions import Place, Position, Positions, beginning_of, encoded, share_of
from twinlog.reo.replicas import Replicas, short_of_replicas, what_holds
from twinlog.reo.sender import NOWHERE, Mark, Refusal, Sender
from twinlog.reo.settings import ReoSettings
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import Producer, add_partitions, end_txn, init_producer_id

log = logging.getLogger("twinlog.reo")

TOO_LARGE: Final = frozenset({codes.MESSAGE_TOO_LARGE, codes.RECORD_LIST_TOO_LARGE})
TOO_FEW_REPLICAS: Final = frozenset({codes.NOT_ENOUGH_REPLICAS, codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
FIRST_PAUSE_S: Final = 0.2
MOST_PAUSE_S: Final = 10.0
PRODUCE_WITHIN_S: Final = 30.0


class TakenOver(GiveWay):
    """Another copy writes under the transactional id now, or the destination ended what this one left open."""


@dataclass(slots=True, eq=False, kw_only=True)
class Part(ABC):
    """A partition that is read, and where its copy stands; `error` is why it waits until `again_at` (monotonic time).

    `target` is the topic that it goes to. `complaint` is an error that stands although reading goes on. `barrier` is
    where a batch was refused: what lies before it is copied and committed first.
    """

    where: TopicPartition
    topic_id: str
    target: str
    position: int = 0
    epoch: int = -1
    inbox: Inbox | None = None
    limit_bytes: int | None = None
    barrier: Mark | None = None
    error: str = ""
    complaint: str = ""
    told: str = ""
    failures: int = 0
    again_at: float = 0.0

    def progress(self) -> Progress:
        """As the reading wants it."""
        return Progress(
            self.where,
            self.position,
            # Of reading only place and leader epoch matter; what is written goes out under the transaction's producer.
            producer_id=-1,
            epoch=0,
            sequence=0,
            spent_epoch=0,
            source_epoch=self.epoch,
        )

    @abstractmethod
    def records(self, error: str) -> dict[Place, Position]:
        """As it is written down."""

    def stop_for(self, error: str) -> None:
        """Wait, longer each time, before the next attempt."""
        if error != self.error:
            log.error("%s stops and is tried again: %s", self.where, error)
        self.error = error
        self.failures += 1
        self.again_at = time.monotonic() + pause_s(self.failures)


P = TypeVar("P", bound=Part)
Put = Callable[[TopicPartition, Batch, Mark, int], Awaitable[bool]]
"""Sends a batch (and says into how many units it could be parted, 0: its records); False: not now, nor what follows."""


@dataclass(frozen=True, slots=True)
class Sides:
    """The clusters, and the share of the work that is meant; the second stage has no source."""

    settings: ReoSettings
    source: Cluster | None
    destination: Cluster
    share: int = 0

    def of(self, share: int) -> "Sides":
        """The same for another share."""
        return replace(self, share=share)

    def owns(self, where: TopicPartition) -> bool:
        """Whether a source partition belongs to this share."""
        return share_of(where.topic, where.partition, self.settings.shares) == self.share

    def positions(self) -> Positions:
        """Where the share's positions are kept."""
        return self._positions_of(self.share)

    async def others_positions(self) -> dict[Place, Position]:
        """What the other shares have written down, as far as it is decided."""
        found: dict[Place, Position] = {}
        for share in range(self.settings.shares):
            if share != self.share:
                other = self._positions_of(share)
                await other.refresh(decided_only=True)
                found |= other.known
        return found

    def _positions_of(self, share: int) -> Positions:
        return Positions(self.destination, self.settings.positions_topic, share, shares=self.settings.shares)


class Stage(ABC, Generic[P]):
    """One step; one object is one owner of its share."""

    name: str = ""

    def __init__(self, sides: Sides, reader: Source) -> None:
        self.sides = sides
        self.settings = sides.settings
        self.share = sides.share
        self.transactional_id = sides.settings.transactional_id(sides.share)
        self.destination = sides.destination
        self.reader = reader
        self.positions = sides.positions()
        self.short: dict[TopicPartition, Replicas] = {}
        self._sender: Sender | None = None

    @abstractmethod
    async def begin(self) -> Sequence[P]:
        """Find what is to be read, and from where; from here on whoever was before is shut out where that matters."""

    @abstractmethod
    async def settle(self, parts: Sequence[P]) -> None:
        """After trouble: find out what the last writes came to, and put each part where it goes on."""

    @abstractmethod
    async def changed(self) -> bool:
        """Whether topics or partitions were added or created again meanwhile."""

    @property
    def sender(self) -> Sender:
        """Sends under the identity that `begin` or `settle` has got; a new one after each of them."""
        if self._sender is None:
            raise RetryLater(f"{self.name} has not begun")
        return self._sender

    @abstractmethod
    def topics(self) -> set[str]:
        """The destination topics that are written to, as far as they are known yet."""

    @abstractmethod
    def target_of(self, part: P) -> TopicPartition | None:
        """The one partition that a part goes to; None where there are several."""

    async def look_at_replicas(self) -> None:
        """Note which partitions have too few replicas in sync (`short`); what was noted stays where nobody answers."""
        with suppress(TwinlogError):
            self.short = await short_of_replicas(self.destination, self.topics())

    async def what_holds(self) -> Sequence[Replicas]:
        """The partitions for whose replicas everything waits."""
        return ()

    @abstractmethod
    def form(self, part: P) -> Form:
        """How what was read is put into batches."""

    @abstractmethod
    async def forward(self, part: P, verdict: Forward, put: Put) -> None:
        """Send on what was read, and move the part behind what was sent."""

    @abstractmethod
    async def enlist(self, producer: Producer, targets: Collection[TopicPartition]) -> None:
        """Make partitions ready to be written, once a transaction."""

    @abstractmethod
    async def commit(self, sender: Sender, added: set[TopicPartition], changed: Sequence[tuple[P, str]]) -> None:
        """Wait until what was sent is in the logs, and write down where each part stands and what stops it."""

    @abstractmethod
    def halt(self, part: P, mark: Mark) -> None:
        """Put a part where the batch of `mark` comes next."""

    @abstractmethod
    def is_before(self, part: P, mark: Mark) -> bool:
        """Whether a part has yet to come to the batch of `mark`."""

    @abstractmethod
    def lacking(self, part: P, first: int) -> str:
        """What to say where what is read begins at `first` only, beyond the position; empty: it goes on there."""

    @abstractmethod
    def named(self, part: P, refusal: Refusal) -> tuple[TopicPartition, str]:
        """Whose batch was refused, and by which topic."""


class InTransactions(Stage[P]):
    """A step that writes records and positions in one transaction."""

    def __init__(self, sides: Sides, reader: Source) -> None:
        super().__init__(sides, reader)
        self._producer = Producer(-1, -1)
        self.known: dict[Place, Position] = {}

    async def take_over(self) -> None:
        """Become the owner of the transactional id, and read the positions, which nobody else can change then."""
        await self.positions.ensure(self.settings.replication_factor)
        await self._owning(None)
        self.known = await self.sides.others_positions() | self.positions.known

    async def regain(self) -> None:
        """Settle the last transaction as its owner, and read the positions; TakenOver where another is the owner."""
        try:
            await self._owning(self._producer)
        except GiveWay as fenced:
            raise TakenOver(
                f"Another copy has begun to write as {self.transactional_id} since, or this one paused for longer "
                f"than transaction-timeout-ms; this one stops. What it had not committed was not copied by it, and "
                f"nothing is doubled; started again, it goes on from there. Run one copy of "
                f"{self.settings.application}, or set shares for several. ({fenced})"
            ) from fenced

    async def _owning(self, before: Producer | None) -> None:
        self._sender = None
        self._producer = await init_producer_id(
            self.destination,
            self.transactional_id,
            timeout_ms=self.settings.transaction_timeout_ms,
            producer=before,
        )
        await self.positions.refresh()
        self._sender = Sender(self.destination, self.transactional_id, self._producer, timeout_s=PRODUCE_WITHIN_S)

    async def what_holds(self) -> Sequence[Replicas]:
        """The partitions whose markers the destination refuses."""
        with suppress(TwinlogError):
            return await what_holds(self.destination, self.transactional_id, {*self.short, self.positions.where})
        return ()

    async def enlist(self, producer: Producer, targets: Collection[TopicPartition]) -> None:
        """Add partitions to the transaction."""
        await add_partitions(self.destination, self.transactional_id, producer, targets)

    async def commit(self, sender: Sender, added: set[TopicPartition], changed: Sequence[tuple[P, str]]) -> None:
        """Write the positions behind their records, and commit both."""
        found = {place: one for part, error in changed for place, one in part.records(error).items()}
        await self._end(sender, added, found)

    async def note_beginning(self, cluster: str) -> None:
        """Write down that the share has begun, where it has no partition yet whose position would tell."""
        await self._end(self.sender, set(), beginning(self.settings.application, cluster))

    async def _end(self, sender: Sender, added: set[TopicPartition], found: Mapping[Place, Position]) -> None:
        where = self.positions.where
        if where not in added:
            await self.enlist(sender.producer, [where])
        if found:
            await sender.put(where, encoded(found), source=None, mark=NOWHERE)
        await sender.flush()
        await end_txn(self.destination, self.transactional_id, sender.producer, commit=True)


def beginning(application: str, cluster: str) -> dict[Place, Position]:
    """What a share writes down to tell that it has begun with a source cluster."""
    return {beginning_of(application, cluster): Position(0, -1, "", "", now_ms())}


def now_ms() -> int:
    """The time, in milliseconds since 1970."""
    return int(time.time() * 1000)


def pause_s(failures: int) -> float:
    """How long to wait after so many failures."""
    return float(min(MOST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(failures, 10)))


def refused(where: TopicPartition, target: str, refusal: Refusal) -> str:
    """The sentence for a batch that was refused."""
    name = codes.code_name(refusal.code)
    advice = "mend what the destination names"
    if refusal.code in TOO_LARGE:
        advice = "raise its max.message.bytes"
    elif refusal.code in TOO_FEW_REPLICAS:
        advice = "mend that"
    said = f"({name}) {refusal.message.rstrip('.')}".rstrip()
    return (
        f"{where}: the destination topic {target} refuses the batch of {refusal.units} records and {refusal.size} "
        f"bytes from source offset {refusal.mark.offset} on {said}. Nothing is skipped: {advice}, and it goes on by "
        f"itself."
    )
