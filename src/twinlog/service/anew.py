"""Makes a topic's destination anew where its source was truncated, for mirrors that are told to follow such a source.

Done by the mirror's coordinator at each refresh; `control.anew` has the steps, and what keeps them safe wherever they
are broken off. Nothing is deleted before the source has been found to have the topic, with a leader for each partition.
"""

import asyncio
import logging
import time

from twinlog.admin import state as admin_state
from twinlog.admin.recreate import check_possible, wait_gone
from twinlog.admin.starting import StartRequest, start_topics
from twinlog.config.mirror import MirrorConfig
from twinlog.control import anew
from twinlog.control.anew import Anew
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState
from twinlog.control.records import MirrorRecord, TopicRecord
from twinlog.control.selection import Selection
from twinlog.errors import AuthorizationFailed, BrokerError, RetryLater, TwinlogError, UnknownTopicOrPartition
from twinlog.names import ids_differ
from twinlog.relay.decide import TRUNCATED
from twinlog.state.log import StateLog
from twinlog.sync.configs import read_current
from twinlog.sync.refresh import HELD_DURING_COPY
from twinlog.sync.topics import is_empty, read_topics, spans
from twinlog.wire.cluster import Cluster, TopicInfo
from twinlog.wire.ops_delete import delete_topic_by_id

log = logging.getLogger("twinlog.anew")

START_WITHIN_S = 30.0
# For how long a refresh waits for a topic's partitions to end; the next one goes on.
REST_WITHIN_S, POLL_S = 15.0, 0.1
# Behind the first broker that no longer knows a deleted topic, the others are some milliseconds late.
ALL_KNOW_S = 1.0
# Between two times that the same topic is made anew, and after one that was refused.
APART_S = 300.0
# A broker with delete.topic.enable=false.
DELETION_DISABLED = 73
SHOWN = 10


class Renewal:
    """The topics that are being made anew, of the mirrors whose coordinator this worker is."""

    def __init__(self, state: StateLog, image: Image) -> None:
        self._state = state
        self._image = image
        self._not_before: dict[tuple[str, str], float] = {}

    async def run(self, mirror: MirrorRecord, config: MirrorConfig, source: Cluster) -> str:
        """Do what is due for the topics of a mirror; returns what could not be done and why."""
        troubles: list[str] = []
        for record in self._image.topics_of(mirror.mirror):
            try:
                if anew.under_way(record):
                    await self._go_on(mirror, record, source)
                elif self._is_due(record, config):
                    await self._begin(mirror, record, source)
            except TwinlogError as error:
                troubles.append(f"{record.topic} is not made anew: {error}")
        return "; ".join(troubles)

    def _is_due(self, record: TopicRecord, config: MirrorConfig) -> bool:
        if record.desired is not DesiredState.MIRRORING or not config.follows_truncated(record.topic):
            return False
        if time.monotonic() < self._not_before.get((record.mirror, record.topic), 0.0):
            return False
        return bool(anew.truncated(self._image, record, TRUNCATED))

    async def _begin(self, mirror: MirrorRecord, record: TopicRecord, source: Cluster) -> None:
        await _check_source(source, record)
        found, failed = await read_topics(self._state.cluster, [record.topic])
        if record.topic not in found:
            raise failed.get(record.topic) or RetryLater(f"Topic '{record.topic}' is not there at the destination.")
        ours = found[record.topic]
        check_possible(ours)
        if ours.id != record.destination_topic_id:
            raise RetryLater(f"Topic '{record.topic}' is another one at the destination than the one mirrored.")
        kept = await self._kept(record, ours)
        await self._warn(record, ours)
        if await admin_state.change(self._state.cluster, self._state, lambda image: anew.begin(image, record, kept)):
            self._wait_with(record)
            begun = await self._followed(record)
            await self._go_on(mirror, begun, source)

    def _wait_with(self, record: TopicRecord) -> None:
        self._not_before[record.mirror, record.topic] = time.monotonic() + APART_S

    async def _kept(self, record: TopicRecord, ours: TopicInfo) -> Anew:
        """What the new topic is to have of the old one, beside what every start gives it."""
        told = await read_current(self._state.cluster, record.topic)
        held = any(one.configs_before for one in anew.states(self._image, record))
        kept = {
            name: entry.value
            for name, entry in told.items()
            if entry.overridden and entry.value is not None and not (held and name in HELD_DURING_COPY)
        }
        return Anew(min(len(part.replicas) for part in ours.partitions.values()), kept)

    async def _warn(self, record: TopicRecord, ours: TopicInfo) -> None:
        logs = await spans(self._state.cluster, [ours])
        held = ", ".join(f"{where} offsets {span.start} to {span.end - 1}" for where, span in sorted(logs.items()))
        why = " ".join(one.error for one in anew.truncated(self._image, record, TRUNCATED))
        log.warning(
            "mirror %s: the destination of topic %s is deleted and made anew, as "
            "mirror.support.unclean.leader.election says; what the source has no more is lost there, too. It holds %s. "
            "%s",
            record.mirror,
            record.topic,
            held,
            why,
        )

    async def _followed(self, record: TopicRecord) -> TopicRecord:
        """The record as it was committed just now, once it is in the followed image."""
        deadline = time.monotonic() + REST_WITHIN_S
        while time.monotonic() < deadline:
            now = self._image.topic(record.mirror, record.topic)
            if now is not None and now.anew:
                return now
            await asyncio.sleep(POLL_S)
        raise RetryLater(f"Topic '{record.topic}': what was written to the state is not read yet.")

    async def _go_on(self, mirror: MirrorRecord, record: TopicRecord, source: Cluster) -> None:
        await self._rested(record)
        await _check_source(source, record)
        await self._delete(record)
        name = record.topic
        include = Selection.of(mirror.configs)
        request = StartRequest(
            mirror=record.mirror,
            include=include.include if include.includes(name) else (name,),
            replication_factor=Anew.read(record.anew).replication_factor,
            start_at="earliest",
            discovered=frozenset({name}),
            anew=Anew.read(record.anew),
        )
        result = await start_topics(self._state.cluster, self._state, request, timeout_s=START_WITHIN_S)
        if name in result.failed:
            raise result.failed[name]
        log.info("mirror %s: topic %s was made anew at the destination", record.mirror, name)

    async def _rested(self, record: TopicRecord) -> None:
        """Wait until every partition has ended. Raises RetryLater where some take longer."""
        deadline = time.monotonic() + REST_WITHIN_S
        while moving := anew.unrested(self._image, record):
            if time.monotonic() > deadline:
                raise RetryLater(f"Partitions {moving[:SHOWN]} of topic '{record.topic}' have not ended yet.")
            await asyncio.sleep(POLL_S)

    async def _delete(self, record: TopicRecord) -> None:
        """Delete the old topic where it is still there, and wait until it is gone.

        By its id: a new one of its name is never met. Where that is refused, the mirror goes on as it was before.
        """
        now = await self._confirmed(record)
        found, failed = await read_topics(self._state.cluster, [record.topic])
        if failed:
            raise failed[record.topic]
        ours = found.get(record.topic)
        if ours is None:
            return
        if ids_differ(ours.id, record.destination_topic_id):
            await self._check_empty(ours)
            return
        told = await admin_state.change(self._state.cluster, self._state, lambda image: anew.delete(image, now))
        if told is None:
            raise RetryLater(f"Topic '{record.topic}' has been changed by a command meanwhile.")
        try:
            await delete_topic_by_id(self._state.cluster, ours.name, ours.id)
        except UnknownTopicOrPartition:
            log.info("topic %s has been deleted by another worker", ours.name)
        except (AuthorizationFailed, BrokerError) as refused:
            if isinstance(refused, BrokerError) and refused.code != DELETION_DISABLED:
                raise
            self._wait_with(told)
            await admin_state.change(self._state.cluster, self._state, lambda image: anew.withdraw(image, told))
            raise AuthorizationFailed(
                f"{refused} The right needed at the destination is DELETE on topic '{ours.name}', and its brokers must "
                f"not run with delete.topic.enable=false. The mirror goes on with the topic as it is."
            ) from refused
        await wait_gone(self._state.cluster, ours, "It is created anew at a later refresh.")
        await asyncio.sleep(ALL_KNOW_S)

    async def _confirmed(self, record: TopicRecord) -> TopicRecord:
        """The topic's record by the state as it is now: nobody has taken it back, and every partition has ended."""
        image = await admin_state.load(self._state)
        now = image.topic(record.mirror, record.topic)
        if now is None or not anew.under_way(now) or now.destination_topic_id != record.destination_topic_id:
            raise RetryLater(f"Topic '{record.topic}' has been changed by a command meanwhile.")
        moving = anew.unrested(image, now)
        if moving:
            raise RetryLater(f"Partitions {moving[:SHOWN]} of topic '{now.topic}' have begun again.")
        return now

    async def _check_empty(self, ours: TopicInfo) -> None:
        """What stands there instead is the new topic, unless it holds something: then it is somebody else's."""
        if not is_empty(ours, await spans(self._state.cluster, [ours])):
            raise RetryLater(
                f"Somebody made a topic '{ours.name}' that holds records at the destination. It is left alone. Delete "
                f"it, and the mirror makes its own; or stop the topic."
            )


async def _check_source(source: Cluster, record: TopicRecord) -> None:
    """Refuse to touch the destination unless the source has the topic, and all of it can be read."""
    found, failed = await read_topics(source, [record.topic])
    there = found.get(record.topic)
    if there is None or ids_differ(record.source_topic_id, there.id):
        raise failed.get(record.topic) or RetryLater(f"Topic '{record.topic}' is not there at the source any more.")
    if len(await spans(source, [there])) != len(there.partitions):
        raise RetryLater(f"Topic '{record.topic}' has partitions at the source that cannot be read now.")
