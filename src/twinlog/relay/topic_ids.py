"""Checks that the topics on both sides are still the ones that were meant, and have as many partitions."""

import asyncio
import logging
import time
from collections.abc import Callable
from uuid import UUID

from twinlog.errors import PartitionFailed, RetryLater
from twinlog.names import ids_differ
from twinlog.relay.lookups import Lookups
from twinlog.relay.tailcheck import Sides
from twinlog.wire.cluster import TopicInfo
from twinlog.wire.codes import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, code_name

log = logging.getLogger("twinlog.takeover")

WHEN_DELETED = {
    # KIP-1279's own message; what can be done is in the log line before it.
    "source": "The source topic is deleted.",
    "destination": "The destination topic is deleted. Stop the topic, then start it again: it is created anew and "
    "mirrored whole.",
}
WANTED = {"source": "READ", "destination": "READ and WRITE"}  # each includes DESCRIBE
WHOSE = {"source": "mirror's", "destination": "worker's"}
# A destination's metadata may lag behind for a moment, and its topics are deleted by hand only.
DESTINATION_APART_S = 1.0
# A suspicion that cannot be looked into for longer than this is given back as the reason that it cannot.
UNTOLD_WITHIN_S = 30.0


class TopicIds:
    """Checks that the topics on both sides are still the ones that were meant.

    What looks wrong is asked once more, `apart_s` later at the source, before it is believed.
    """

    def __init__(
        self,
        sides: Sides,
        topic: str,
        *,
        source: UUID,
        destination: UUID,
        apart_s: float = DESTINATION_APART_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sides = sides
        self._topic = topic
        self._expected = {"source": source, "destination": destination}
        self._apart_s = {"source": apart_s, "destination": min(apart_s, DESTINATION_APART_S)}
        self._clock = clock
        self._since: dict[str, float] = {}

    async def check(self) -> None:
        """Raises PartitionFailed where a topic was deleted (seen twice, some time apart) or created again.

        RetryLater where it looks so for the first time, or cannot be told.
        """
        here = await self._one(self._sides.destination, "destination")
        there = await self._one(self._sides.source, "source")
        self._check_counts(len(there.partitions), len(here.partitions))

    async def judge(self) -> None:
        """The same, but where something looks wrong it is waited until that is sure, or cannot be told for long."""
        until = self._clock() + max(self._apart_s.values()) + UNTOLD_WITHIN_S
        while True:
            try:
                return await self.check()
            except RetryLater:
                if not self._since or self._clock() > until:
                    raise
            await asyncio.sleep(min(1.0, *self._apart_s.values()))

    async def _one(self, cluster: Lookups, side: str) -> TopicInfo:
        expected = self._expected[side]
        info = await cluster.topic(self._topic)
        if info is None or info.error == UNKNOWN_TOPIC_OR_PARTITION:
            self._twice(side, f"{self._topic}: the {side} says that there is no such topic")
            log.error("%s: the %s topic is deleted; the other side's is kept", self._topic, side)
            raise PartitionFailed(WHEN_DELETED[side])
        self._since.pop(side, None)
        if info.error == TOPIC_AUTHORIZATION_FAILED:
            raise PartitionFailed(
                f"{self._topic}: the {side} cluster does not let the topic be seen. Grant {WANTED[side]} on topic "
                f"{self._topic} at the {side} to the {WHOSE[side]} principal; it is tried again by itself.",
                retriable=True,
            )
        if info.error:
            raise RetryLater(f"{self._topic}: the {side} answers {code_name(info.error)} when asked for the topic")
        if ids_differ(expected, info.id):
            raise PartitionFailed(
                f"{self._topic}: the {side} topic was deleted and created again: its id was {expected} and is now "
                f"{info.id}. Nothing more is written. Stop the topic, keep what you need, delete the destination "
                f"topic and start it again."
            )
        return info

    def _check_counts(self, there: int, here: int) -> None:
        """Producers spread keys by the count, so a twin with more partitions than its source is none."""
        if here <= there:
            self._since.pop("count", None)
            return
        self._twice("count", f"{self._topic}: {here} partitions at the destination and {there} at the source")
        raise PartitionFailed(
            f"{self._topic}: the destination topic has {here} partitions, the source topic {there}: somebody added "
            f"some by hand. Nothing more is written. Delete the destination topic and start it again; where the "
            f"source is given as many, it goes on by itself.",
            retriable=True,
        )

    def _twice(self, what: str, trouble: str) -> None:
        """Raises RetryLater until `what` was first seen so long ago that it is believed."""
        now = self._clock()
        since = self._since.setdefault(what, now)
        if now == since or now - since < self._apart_s.get(what, DESTINATION_APART_S):
            raise RetryLater(f"{trouble}; asking once more")
