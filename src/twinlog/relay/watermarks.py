"""Asks the destination's leaders how far the high watermarks are, for the partitions that have unconfirmed data.

One question a broker for all of its partitions, each naming the leader epoch that its stream is bound to
(`current_leader_epoch`, KIP-320), so that another leader's answer, or that of a deposed one, is an error and not a
number. A high watermark that stands still for a while may mean that the leader is none any more without knowing: then
another broker is asked who leads.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from twinlog.errors import TwinlogError
from twinlog.relay.window import Window
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster
from twinlog.wire.metadata import Leader
from twinlog.wire.ops_log import (
    CONSUMER,
    LATEST,
    NEWEST_LIST_OFFSETS,
    ListedOffset,
    list_offsets_request,
    listed_offsets,
)

log = logging.getLogger("twinlog.watermarks")

WATERMARK_LANE = "watermarks"
# While nobody waits for it, and while somebody does (doubled up to the former as long as nothing moves).
CALM_S, URGENT_S = 0.1, 0.003
ANSWER_WITHIN_S = 2.0
# For so long a high watermark may stand still before another broker is asked who leads.
STILL_S = 2.0
METADATA_WITHIN_S = 2.0
AFTER_MISTAKE_S = 1.0
# Codes that say that the broker is not the leader that the stream is bound to.
DEPOSED = frozenset(
    {
        codes.NOT_LEADER_OR_FOLLOWER,
        codes.FENCED_LEADER_EPOCH,
        codes.UNKNOWN_TOPIC_OR_PARTITION,
        codes.REPLICA_NOT_AVAILABLE,
        codes.KAFKA_STORAGE_ERROR,
    }
)


class Watermarks:
    """All windows of a worker, watched broker by broker."""

    def __init__(self, cluster: Cluster, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._clock = clock
        self._watches: dict[int, _Watch] = {}

    def __repr__(self) -> str:
        return f"Watermarks({sum(len(watch.windows) for watch in self._watches.values())} windows)"

    def watch(self, window: Window) -> None:
        """Look after `window` from now on."""
        node = window.leader.node
        watch = self._watches.get(node)
        if watch is None or watch.task.done():
            left = watch.windows if watch is not None else set()
            watch = self._watches[node] = _Watch(self._cluster, node, clock=self._clock, windows=left)
            for known in left:
                known.on_need = watch.hurry.set
        watch.windows.add(window)
        window.on_need = watch.hurry.set

    def forget(self, window: Window) -> None:
        """Look after `window` no more."""
        watch = self._watches.get(window.leader.node)
        if watch is not None:
            watch.windows.discard(window)
        window.on_need = window.on_lost = None

    async def close(self) -> None:
        """End the watching."""
        tasks = [watch.task for watch in self._watches.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._watches.clear()


class _Watch:
    """The windows whose leader is one broker."""

    def __init__(self, cluster: Cluster, node: int, *, clock: Callable[[], float], windows: set[Window]) -> None:
        self.windows = windows
        self.hurry = asyncio.Event()
        self._cluster = cluster
        self._node = node
        self._clock = clock
        self.task = asyncio.create_task(self._run(), name=f"high watermarks of broker {node}")

    async def _run(self) -> None:
        while True:
            try:
                await self._watch()
            except Exception:  # a mistake of ours: nobody else would ask, and sending would stop for good
                log.exception("watching the high watermarks of broker %d", self._node)
                await asyncio.sleep(AFTER_MISTAKE_S)

    async def _watch(self) -> None:
        pause_s = URGENT_S
        while True:
            pending = [window for window in self.windows if not window.empty and window.lost is None]
            if not pending:
                self.hurry.clear()
                await self.hurry.wait()
                continue
            before = sum(window.unconfirmed_bytes for window in pending)
            await self._ask(pending)
            await self._doubt(pending)
            moved = sum(window.unconfirmed_bytes for window in pending) != before
            pause_s = URGENT_S if moved else min(2 * pause_s, CALM_S)
            await self._pause(pause_s if any(window.urgent for window in pending) else CALM_S)

    async def _pause(self, seconds: float) -> None:
        """Sleep; where nobody was waiting, somebody who comes to wait ends it."""
        self.hurry.clear()
        if seconds < CALM_S:
            await asyncio.sleep(seconds)
            return
        try:
            async with asyncio.timeout(seconds):
                await self.hurry.wait()
        except TimeoutError:
            return

    async def _ask(self, pending: list[Window]) -> None:
        request = list_offsets_request(
            {window.where: (window.leader, LATEST) for window in pending}, replica_id=CONSUMER, read_committed=False
        )
        try:
            # A broker that is not there takes long to be given up, and nobody must wait for that to doubt it.
            async with asyncio.timeout(ANSWER_WITHIN_S):
                connection = await self._cluster.lane(self._node, WATERMARK_LANE)
            answer = await connection.request(request, timeout_s=ANSWER_WITHIN_S, max_version=NEWEST_LIST_OFFSETS)
        except (TwinlogError, TimeoutError) as error:
            log.debug("high watermarks of broker %d: %s", self._node, error)
            await asyncio.sleep(CALM_S)
            return
        listed = listed_offsets(answer)
        for window in pending:
            _hear(window, listed.get(window.where))

    async def _doubt(self, pending: list[Window]) -> None:
        """Ask another broker who leads the partitions whose high watermark stands still."""
        now = self._clock()
        still = [window for window in pending if not window.empty and now - window.doubted_at >= STILL_S]
        if not still:
            return
        for window in still:
            window.doubted_at = now
        names = {window.where.topic for window in still}
        try:
            told = await self._cluster.topics(names, avoid_node=self._node, timeout_s=METADATA_WITHIN_S)
        except TwinlogError as error:
            log.info("high watermarks of broker %d stand still, and nobody tells who leads: %s", self._node, error)
            return
        leaders: Mapping[tuple[str, int], Leader] = {
            (name, number): Leader(part.leader, part.leader_epoch)
            for name, topic in told.items()
            for number, part in topic.partitions.items()
        }
        for window in still:
            leader = leaders.get(window.where)
            if leader is not None and leader != window.leader:
                window.lose(f"the leader is now broker {leader.node} in epoch {leader.epoch}")


def _hear(window: Window, listed: ListedOffset | None) -> None:
    if listed is None:
        return
    if listed.error in DEPOSED:
        window.lose(f"broker {window.leader.node} leads no more ({codes.code_name(listed.error)})")
    elif not listed.error:
        window.passed(listed.offset, by_mark=True)
