"""What a broker and a fetcher remember of each other between two requests: an incremental fetch session (KIP-227).

Pure. A session spares both sides the partitions in which nothing has changed: a request names those whose position is
another than before, and those to be left out from now on; the answer names those that have records, an error, or
another high watermark or log start than it told last (`CachedPartition.maybeUpdateResponseData`). A partition that it
does not name is as it was. Its *last stable offset* alone does not make a broker name a partition again, and that can
move a moment after the high watermark it follows; so a session is begun anew from time to time, and its first answer
names everything.

The broker reads the partitions of a session in the order in which they joined, and puts those that returned records
behind the others (`IncrementalFetchContext`), so that none starves for good.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from twinlog.names import TopicPartition

NO_SESSION: Final = 0
NEW_EPOCH: Final = 0
WITHOUT_SESSION: Final = -1
LAST_EPOCH: Final = 2**31 - 1
# How long the broker may leave something unsaid. A full request of 1,000 partitions takes some 15 ms of our time.
RENEW_AFTER_S: Final = 30.0


class Ask(NamedTuple):
    """What a request says of one partition; `owner` tells apart two subscriptions to the same partition."""

    position: int
    leader_epoch: int
    last_fetched_epoch: int
    topic_id: UUID
    owner: int


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """One request: `asks` go into it, `forget` are left out from now on; `full` where it names all partitions."""

    session_id: int
    epoch: int
    asks: Mapping[TopicPartition, Ask]
    forget: Mapping[TopicPartition, Ask]
    full: bool

    @property
    def alone(self) -> bool:
        """Whether it goes outside of any session."""
        return self.epoch == WITHOUT_SESSION


def alone(asks: Mapping[TopicPartition, Ask]) -> FetchPlan:
    """A request outside of any session, which it does not disturb."""
    return FetchPlan(NO_SESSION, WITHOUT_SESSION, asks, {}, full=True)


class FetchSession:
    """Our side of the session with one broker; a broker that grants none is asked for everything each time."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = NEW_EPOCH
        self._by_id = False
        self._began = 0.0
        self._told: dict[TopicPartition, Ask] = {}

    def __repr__(self) -> str:
        return f"FetchSession({self._id} at {self._epoch}, {len(self._told)} partitions)"

    @property
    def is_open(self) -> bool:
        """Whether the next request is an incremental one."""
        return self._epoch != NEW_EPOCH

    def plan(self, wanted: Mapping[TopicPartition, Ask], *, by_id: bool, now: float) -> FetchPlan:
        """What to ask, so that the broker reads exactly `wanted`; `now` in monotonic seconds.

        Parameters: `by_id` says whether the request's version names topics by id; a session is bound to one way.
        """
        if self.is_open and by_id == self._by_id and now - self._began < RENEW_AFTER_S:
            asks = {where: ask for where, ask in wanted.items() if self._told.get(where) != ask}
            if not self._replaces(asks):
                forget = {}
                if len(self._told) + sum(where not in self._told for where in asks) > len(wanted):
                    forget = {where: ask for where, ask in self._told.items() if where not in wanted}
                return FetchPlan(self._id, self._epoch, asks, forget, full=False)
        self._by_id, self._began = by_id, now
        # Names the former session, if there is one: the broker then closes it.
        return FetchPlan(self._id, NEW_EPOCH, wanted, {}, full=True)

    def answered(self, plan: FetchPlan, session_id: int) -> bool:
        """Take in that `plan` was carried out; False where the answer does not belong to it."""
        if plan.full:
            self._id = session_id
            self._epoch = NEW_EPOCH if session_id == NO_SESSION else 1
            self._told = dict(plan.asks) if session_id != NO_SESSION else {}
            return True
        if session_id != self._id:
            self.lost()
            return False
        self._epoch = 1 if self._epoch == LAST_EPOCH else self._epoch + 1
        for where in plan.forget:
            self._told.pop(where, None)
        self._told.update(plan.asks)
        return True

    def renew(self) -> None:
        """Let the next request be a full one, whose answer tells everything."""
        self._epoch = NEW_EPOCH
        self._told = {}

    def lost(self) -> None:
        """The broker no longer knows the session."""
        self.renew()
        self._id = NO_SESSION

    def _replaces(self, asks: Mapping[TopicPartition, Ask]) -> bool:
        """Whether a partition was subscribed to anew.

        What the former subscription was told, the new one does not know, and the broker would not say it again.
        """
        return any(self._changed_hands(where, ask) for where, ask in asks.items())

    def _changed_hands(self, where: TopicPartition, ask: Ask) -> bool:
        told = self._told.get(where)
        return told is not None and (told.owner, told.topic_id) != (ask.owner, ask.topic_id)
