"""Looks after idle partitions: whether the log end is where it should be, and whether the source's start has moved."""

import asyncio
import logging

from twinlog.errors import TwinlogError
from twinlog.names import TopicPartition
from twinlog.relay.partition import PartitionRelay
from twinlog.relay.prefix import follow_log_start
from twinlog.service.shards import Shards
from twinlog.wire.cluster import Cluster
from twinlog.wire.codes import UNKNOWN_TOPIC_OR_PARTITION
from twinlog.wire.log_ends import LogEnds

log = logging.getLogger("twinlog.sweep")

SWEEP_EVERY_S = 1.0
# Deleting what the source has deleted is not urgent; each is a request to every replica.
STARTS_EVERY = 5
START_WITHIN_S = 5.0
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

    async def _starts(self) -> None:
        for relay in list(self._idle().values()):
            start = min(relay.figures.log_start_offset, relay.position)
            if start > relay.destination_start >= 0:
                await self._follow(relay, start)

    async def _follow(self, relay: PartitionRelay, start: int) -> None:
        """One partition that cannot follow must not hold up the others; the next turn tries again."""
        try:
            async with asyncio.timeout(START_WITHIN_S):
                await follow_log_start(self._cluster, relay.where, start)
        except (TwinlogError, TimeoutError) as error:
            log.warning("%s: the log start does not follow the source's: %s", relay.where, error)
        else:
            relay.destination_start = start
