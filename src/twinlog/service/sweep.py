"""Looks after partitions that stream.

Whether the log end of one that is idle is where it should be, whether the source's start has moved, and whether
somebody has added partitions to a topic by hand.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from uuid import UUID

from twinlog.errors import TwinlogError
from twinlog.names import TopicPartition, ids_differ
from twinlog.relay.partition import PartitionRelay
from twinlog.relay.prefix import follow_log_start
from twinlog.service.leftovers import delete_filler
from twinlog.service.shards import Shards
from twinlog.wire.cluster import Cluster
from twinlog.wire.codes import UNKNOWN_TOPIC_OR_PARTITION
from twinlog.wire.log_ends import LogEnds
from twinlog.wire.ops import EARLIEST

log = logging.getLogger("twinlog.sweep")

SWEEP_EVERY_S = 1.0
# Deleting what the source has deleted is not urgent; each is a request to every replica.
STARTS_EVERY = 5
START_WITHIN_S = 5.0
# A broker that hangs costs that bound for each partition: so many wait for theirs at once.
AT_ONCE = 16
# So is what a dead broker has brought back in topics that are mirrored no more.
RESTS_EVERY = 10
# One request for all topics.
COUNTS_EVERY = 5
COUNTS_WITHIN_S = 5.0
# A broker that is slow holds up the look at the others for so long.
ANSWER_WITHIN_S = 2.0
# A broker that has just started may not know a topic for a moment: so many looks in a row have to find that.
UNKNOWN_TURNS = 3
# A broker that does not answer in time has the connection reset, which must not hit others' requests.
SWEEP_LANE = "sweep"


class Sweep:
    """Runs beside the relays of a worker."""

    def __init__(self, cluster: Cluster, shards: Shards) -> None:
        self._cluster = cluster
        self._shards = shards
        self._log_ends = LogEnds(cluster, lane=SWEEP_LANE)
        self._log_starts = LogEnds(cluster, lane=SWEEP_LANE, at=EARLIEST)
        self._unknown: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        """Sweep once a second until cancelled; trouble with the destination is the relays' own to notice."""
        turn = 0
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            turn += 1
            try:
                await self._ends()
                if turn % STARTS_EVERY == 0:
                    await self._starts()
                if turn % RESTS_EVERY == 0:
                    await self._rests()
                if turn % COUNTS_EVERY == 0:
                    await self._counts()
            except TwinlogError as error:
                log.info("the destination could not be looked at: %s", error)

    def _idle(self) -> dict[TopicPartition, PartitionRelay]:
        relays = (supervisor.relay for supervisor in self._shards.supervisors)
        return {relay.where: relay for relay in relays if relay is not None and relay.streaming_idle}

    async def _ends(self) -> None:
        relays = self._idle()
        if not relays:
            return
        before = {where: relay.position for where, relay in relays.items()}
        ends = await self._log_ends.ask(relays, timeout_s=ANSWER_WITHIN_S)
        unknown: dict[TopicPartition, int] = {}
        for where, relay in relays.items():
            error, end = ends.get(where, (0, before[where]))
            if (not error and end == before[where]) or not relay.streaming_idle or relay.position != before[where]:
                continue
            if not error:
                relay.surprise(f"{where}: the destination ends at {end}, not at {before[where]}")
            elif error == UNKNOWN_TOPIC_OR_PARTITION:
                unknown[where] = self._unknown.get(where, 0) + 1
                if unknown[where] >= UNKNOWN_TURNS:
                    relay.surprise(f"{where}: the destination does not know this topic")
        self._unknown = unknown

    async def _counts(self) -> None:
        """A topic that was made anew is another one, and one with more partitions than its source is no twin.

        The latter since producers spread keys by the count. The takeover asks the source, too, and judges.
        """
        counts: dict[str, int] = {}
        for one in self._shards.supervisors:
            if one.relay is not None:
                counts[one.topic] = max(one.mirrored_partitions, counts.get(one.topic, 0))
        if not counts:
            return
        told = await self._cluster.topics(sorted(counts), timeout_s=COUNTS_WITHIN_S)
        grown = {name: len(told[name].partitions) for name in counts if name in told}
        for one in self._shards.supervisors:
            here, mirrored = grown.get(one.topic, 0), counts.get(one.topic, 0)
            if one.relay is not None and here > mirrored:
                one.relay.surprise(f"{one.topic}: {here} partitions at the destination, and {mirrored} are mirrored")
            elif one.relay is not None and here and ids_differ(_meant(one.relay), told[one.topic].id):
                # A log as long as the former one does not show in its end.
                one.relay.surprise(f"{one.topic}: the destination topic has another id than was meant")

    async def _starts(self) -> None:
        """The real log starts are asked for, since a broker that dies may forget for a minute's time what was deleted.

        Whoever starts at 0 need not be asked.
        """
        relays = {where: relay for where, relay in self._idle().items() if _wanted_start(relay) > 0}
        if not relays:
            return
        told = await self._log_starts.ask(relays, timeout_s=ANSWER_WITHIN_S)
        late: list[PartitionRelay] = []
        for where, relay in relays.items():
            error, start = told.get(where, (UNKNOWN_TOPIC_OR_PARTITION, -1))
            if error:
                continue
            relay.destination_start = start
            if _wanted_start(relay) > start:
                late.append(relay)
        await _side_by_side(partial(self._follow, relay, _wanted_start(relay)) for relay in late)

    async def _rests(self) -> None:
        """Filler comes back by a broker's death, or was left by a failure: no reader is to meet it at rest, either."""
        resting = {TopicPartition(one.topic, one.partition): one for one in self._shards.resting}
        if not resting:
            return
        told = await self._log_starts.ask(resting, timeout_s=ANSWER_WITHIN_S)
        filled: list[TopicPartition] = []
        for where, record in resting.items():
            error, start = told.get(where, (UNKNOWN_TOPIC_OR_PARTITION, -1))
            if not error and start < record.first_offset:
                filled.append(where)
        await _side_by_side(
            partial(delete_filler, self._cluster, where, resting[where], within_s=START_WITHIN_S) for where in filled
        )

    async def _follow(self, relay: PartitionRelay, start: int) -> None:
        """One partition that cannot follow must not hold up the others; the next turn tries again."""
        try:
            async with asyncio.timeout(START_WITHIN_S):
                await follow_log_start(self._cluster, relay.where, start, relay.claim.destination_topic_id)
        except (TwinlogError, TimeoutError) as error:
            log.warning("%s: the log start does not follow the source's: %s", relay.where, error)
        else:
            relay.destination_start = start


async def _side_by_side(works: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Do each, some at once; each has a bound of its own and tells of its trouble itself."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def gated(work: Callable[[], Awaitable[None]]) -> None:
        async with gate:
            await work()

    await asyncio.gather(*map(gated, works))


def _meant(relay: PartitionRelay) -> UUID:
    return relay.claim.destination_topic_id


def _wanted_start(relay: PartitionRelay) -> int:
    return min(max(relay.figures.log_start_offset, relay.first_offset), relay.confirmed)
