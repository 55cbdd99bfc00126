"""Denies others to write to the topics of the mirrors whose shard this worker owns, and allows it again at a stop.

What is denied is noted with the mirror before it is, and until it is not: whoever has the mirror next finds it there.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from twinlog.config.acls import denial
from twinlog.config.mirror import MirrorConfig
from twinlog.control.image import Image
from twinlog.control.records import Skipped
from twinlog.sync import denials
from twinlog.sync.acls import KIND
from twinlog.wire.cluster import Cluster

log = logging.getLogger("twinlog.acls")

ALLOW_WITHIN_S = 5.0
TRY_AGAIN_S = 60.0
"""Whoever is no super user is not one a moment later: brokers read their super users when they start."""


class Notes(Protocol):
    """Where it is noted what is denied."""

    def denied(self, mirror: str) -> frozenset[str]:
        """The topics of a mirror to which others are denied to write."""

    async def note_denied(
        self, mirror: str, *, more: Collection[str] = (), fewer: Collection[str] = ()
    ) -> frozenset[str]:
        """Store that topics are denied, and others no longer are; returns what is stored then."""


class Denials:
    """Makes and deletes the ACLs; one thing at a time for each mirror."""

    def __init__(self, cluster: Cluster, image: Image, notes: Notes) -> None:
        self._cluster = cluster
        self._image = image
        self._notes = notes
        self._changing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        # Made by this process: a command that saw no worker may have allowed it, and forgotten it, just before.
        self._made: defaultdict[str, set[str]] = defaultdict(set)
        self._said: dict[str, str] = {}
        self._trouble = ""
        self._try_at = 0.0

    @property
    def mirrors(self) -> frozenset[str]:
        """Those for which this process has made some."""
        return frozenset(mirror for mirror, topics in self._made.items() if topics)

    async def refresh(
        self, mirror: str, config: MirrorConfig, owned: Callable[[], bool]
    ) -> tuple[Sequence[Skipped], int]:
        """Deny what is not denied yet, where that leaves twinlog's own right alone; returns what it was not, and why.

        Raises where the ACLs cannot be read.
        """
        if not config.acls_deny_writes:
            return (), 0  # what was denied before is for `allow`
        skipped, errors = await self._refresh(mirror, owned)
        self._say(mirror, skipped[0].reason if skipped else "")
        return skipped, errors

    async def _refresh(self, mirror: str, owned: Callable[[], bool]) -> tuple[Sequence[Skipped], int]:
        topics = denials.to_deny(self._image, mirror)
        if not topics:
            return (), 0
        # Looked at without holding up a stop; what was stopped meanwhile is left out in `_deny`.
        ours = await denials.read(self._cluster)
        if ours is None:
            return (denials.without_authorizer(),), 0
        denied = self._notes.denied(mirror)
        there = [topic for topic in topics if topic in denied and denial(topic) in ours]
        lost = await denials.lost(self._cluster, there) if there else ""
        if lost:
            async with self._changing[mirror]:
                await self._allow(mirror, there)
            return (Skipped(KIND, denials.ALL_OF_THEM, lost),), 1
        if all(denial(topic) in ours for topic in topics):
            return (), 0
        if await self._in_trouble():
            return (Skipped(KIND, denials.ALL_OF_THEM, self._trouble),), 0
        open_without = await denials.open_without_acl(self._cluster)
        wanted, left = denials.sort_out(topics, ours, denied, open_without=open_without)
        async with self._changing[mirror]:
            failed = await self._deny(mirror, wanted, owned)
        return (*failed, *left), len(failed)

    async def _in_trouble(self) -> bool:
        if not self._trouble or time.monotonic() >= self._try_at:
            self._trouble = await denials.trouble(self._cluster)
            self._try_at = time.monotonic() + TRY_AGAIN_S
        return bool(self._trouble)

    async def _deny(self, mirror: str, wanted: Collection[str], owned: Callable[[], bool]) -> Sequence[Skipped]:
        wanted = set(wanted).intersection(denials.to_deny(self._image, mirror))
        if not wanted or not owned() or not wanted <= await self._notes.note_denied(mirror, more=wanted):
            return ()
        self._made[mirror] |= wanted
        without, failed = await denials.deny(self._cluster, wanted)
        self._made[mirror] -= without
        if without:
            await self._notes.note_denied(mirror, fewer=without)
        if made := sorted(wanted - without):
            log.info("mirror %s: others are denied to write to %d topics, e.g. %s", mirror, len(made), made[0])
        return failed

    def due(self, mirror: str) -> frozenset[str]:
        """The topics that others are to be allowed to write to now; none while something is being changed."""
        known = self._notes.denied(mirror) | self._made.get(mirror, set())
        if not known or self._changing[mirror].locked():
            return frozenset()
        return denials.over(self._image, mirror, known)

    async def allow(self, mirror: str) -> None:
        """Delete the ACLs of those that are due. Raises, or leaves it due, where that fails: try again."""
        async with self._changing[mirror]:
            known = self._notes.denied(mirror) | self._made[mirror]
            await self._allow(mirror, sorted(denials.over(self._image, mirror, known)))

    async def _allow(self, mirror: str, topics: Collection[str]) -> None:
        refused = await denials.allow(self._cluster, topics, timeout_s=ALLOW_WITHIN_S)
        done = set(topics).difference(refused)
        self._made[mirror] -= done
        await self._notes.note_denied(mirror, fewer=done)
        if done:
            log.info("mirror %s: others are no longer denied to write to %s", mirror, ", ".join(sorted(done)[:5]))
        for error in refused.values():
            raise error

    def _say(self, mirror: str, why: str) -> None:
        """What is alike at each refresh is listed, but a line in the log only once."""
        if why and self._said.get(mirror) != why:
            log.warning("mirror %s: denying others to write: %s", mirror, why)
        self._said[mirror] = why
