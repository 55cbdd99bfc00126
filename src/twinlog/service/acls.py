"""The ACLs of the mirrors whose shard this worker owns: synced at each refresh, given as soon as a topic is stopped.

What is held back is stored with the mirror (`SkippedRecord.held`), so that it can be given without the source; so is
what others are denied (`SkippedRecord.denied`), which is taken away first.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace

from twinlog.config.client import ClientSettings
from twinlog.config.kinds import AclsSyncMode
from twinlog.config.mirror import MirrorConfig
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState
from twinlog.control.records import SkippedRecord
from twinlog.errors import TwinlogError
from twinlog.service.denials import Denials
from twinlog.service.keeper import Keeper
from twinlog.sync import acls
from twinlog.sync.acl_change import create
from twinlog.sync.acls import AclsDone, Giving, Names, Scope
from twinlog.wire.cluster import Cluster

log = logging.getLogger("twinlog.acls")

LOOK_EVERY_S = 0.5
GIVE_WITHIN_S = 5.0
GIVE_AGAIN_S = 5.0
"""Until what could not be given is tried again."""


def own_principal(settings: ClientSettings) -> str:
    """Return the principal that a cluster sees us as; "" where only the cluster knows (certificates, tokens)."""
    security = settings.security
    named = security.sasl and security.sasl_mechanism in {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
    return f"User:{security.sasl_username}" if named and security.sasl_username else ""


class Acls:
    """Syncs and gives; `errors` counts by mirror."""

    def __init__(self, cluster: Cluster, image: Image, keeper: Keeper) -> None:
        self.errors: Counter[str] = Counter()
        self._cluster = cluster
        self._image = image
        self._keeper = keeper
        # Held from reading what is stored until what follows from it is stored.
        self.storing = asyncio.Lock()
        self.denials = Denials(cluster, image, self)
        self._written: dict[str, SkippedRecord] = {}
        self._without: set[str] = set()
        self._again_at: dict[str, float] = {}

    async def sync(self, mirror: str, config: MirrorConfig, source: Cluster) -> AclsDone:
        """Bring the ACLs of a mirror's topics over. Raises where they cannot be read at all."""
        # What is at rest by now is for `keep_giving`; what comes to rest from here on is still held back by the result.
        scope = Scope(
            config=config,
            mirrored=Names(
                one.topic for one in self._image.topics_of(mirror) if one.desired is not DesiredState.STOPPED
            ),
            closed=acls.closed_topics(self._image),
            existing=await self._existing(config),
            own=own_principal(self._cluster.settings),
            cutting=self._cutting(mirror),
            denied=self.denied(mirror),
        )
        done = await acls.sync(source, self._cluster, scope)
        for verb, changed in (("made", done.created), ("deleted", done.deleted)):
            if changed:
                log.info("mirror %s: %d ACLs %s at the destination, e.g. %s", mirror, len(changed), verb, changed[0])
        if done.lost:
            log.error("mirror %s: ACLs taken back, since twinlog lost %s by them", mirror, ", ".join(done.lost[:5]))
        if done.authorizers:
            self._without.discard(mirror)
        elif mirror not in self._without:
            self._without.add(mirror)
            why = (
                done.skipped[0].reason if done.skipped else "Neither side has an authorizer: there are no ACLs to sync."
            )
            log.info("mirror %s: ACL sync: %s", mirror, why)
        return done

    def kept(self, mirror: str, done: AclsDone | None, config: MirrorConfig) -> Giving:
        """Say what to store as held back: what the sync says (None: it failed) and what is yet to be given."""
        before = self.stored(mirror)
        if before is None or config.acls_sync_mode is AclsSyncMode.OFF:
            return Giving((), done.held if done else (), done.held_for if done else ())
        if done is None:
            return Giving((), before.held, before.held_for)
        left = acls.still_due(before.held, before.held_for, acls.stopped_topics(self._image, mirror))
        held = dict.fromkeys((*done.held, *left.held))
        return Giving((), tuple(held), tuple(sorted({*done.held_for, *left.held_for})))

    def stored(self, mirror: str) -> SkippedRecord | None:
        """Return what is stored; what this worker wrote last, where it has not been followed yet."""
        followed, written = self._image.skipped.get(mirror), self._written.get(mirror)
        if written is None or mirror not in self._image.mirrors:
            return followed
        return written if followed is None or written.at_ms > followed.at_ms else followed

    async def store(self, record: SkippedRecord) -> None:
        """Store a record, with the time at which that is done; `storing` is held."""
        record = replace(record, at_ms=time.time_ns() // 1_000_000)
        await self._keeper.put(record)
        self._written[record.mirror] = record

    def denied(self, mirror: str) -> frozenset[str]:
        """Return the topics to which twinlog denies others to write; a mirror is deleted only when there are none."""
        record = self.stored(mirror) if mirror in self._image.mirrors else None
        return frozenset(record.denied if record else ())

    async def note_denied(
        self, mirror: str, *, more: Collection[str] = (), fewer: Collection[str] = ()
    ) -> frozenset[str]:
        """Store that topics are denied, and others no longer are; returns what is stored then."""
        async with self.storing:
            before = self.stored(mirror) or SkippedRecord(mirror, 0)
            after = replace(before, denied=tuple(sorted({*before.denied, *more}.difference(fewer))))
            if mirror not in self._image.mirrors:
                return frozenset()
            if after != before:
                await self.store(after)
            return frozenset(after.denied)

    async def keep_giving(self, owns: Callable[[str], bool]) -> None:
        """Give what was held back for a topic as soon as that is stopped, until cancelled.

        What was denied to others is taken away first; where that fails, the rest is given all the same.
        """
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            made_here = self.denials.mirrors
            for mirror in {*self._image.skipped, *made_here}:
                if time.monotonic() < self._again_at.get(mirror, 0.0) or not (owns(mirror) or mirror in made_here):
                    continue
                if self.denials.due(mirror):
                    await self._safely(mirror, "what others are denied could not be taken away", self.denials.allow)
                record = self.stored(mirror)
                if record is not None and record.held and owns(mirror):
                    await self._safely(mirror, "ACLs held back could not be given", self._give)

    async def _safely(self, mirror: str, what: str, act: Callable[[str], Awaitable[None]]) -> None:
        try:
            await act(mirror)
        except TwinlogError as error:
            self._failed(mirror, what, str(error))
        except Exception:  # a mistake of ours must not keep other mirrors' ACLs from being given
            log.exception("mirror %s: %s: unexpected error", mirror, what)
            self._failed(mirror, what, "")

    def _failed(self, mirror: str, what: str, why: str) -> None:
        self.errors[mirror] += 1
        self._again_at[mirror] = time.monotonic() + GIVE_AGAIN_S
        if why:
            log.warning("mirror %s: %s, which is tried again in a while: %s", mirror, what, why)

    async def _give(self, mirror: str) -> None:
        record = self.stored(mirror)
        if record is None:
            return
        topics = acls.due(record.held, record.held_for, acls.stopped_topics(self._image, mirror))
        configs = self._image.mirrors.get(mirror)
        if not topics or configs is None or not acls.gives(configs):
            return
        giving = acls.give(record.held, record.held_for, topics, acls.closed_topics(self._image))
        refused = await create(self._cluster, giving.create, timeout_s=GIVE_WITHIN_S)
        for acl, error in refused.items():
            self.errors[mirror] += 1
            log.error("mirror %s: %s; it is not tried again: %s", mirror, acl, error)
        log.info("mirror %s: %s stopped, %d ACLs given", mirror, ", ".join(sorted(topics)), len(giving.create))
        async with self.storing:
            now = self.stored(mirror)
            if now is not None:
                await self.store(acls.without_given(now, record, giving))

    def _cutting(self, mirror: str) -> frozenset[str]:
        record = self._image.skipped.get(mirror)
        return frozenset(item.name for item in (record.items if record else ()) if item.reason == acls.CUTS)

    async def _existing(self, config: MirrorConfig) -> Names:
        """The destination's topics, where that makes a difference."""
        exact = config.acls_sync_mode is AclsSyncMode.EXACT
        return Names(await self._cluster.topics(None)) if exact else Names()
