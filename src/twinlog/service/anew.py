"""Makes a topic's destination anew where its source was truncated, for mirrors that are told to follow such a source.

Done by the mirror's coordinator at each refresh; `control.anew` has the steps, and what keeps them safe wherever they
are broken off. Nothing is deleted before the source has been found to have the topic, with a leader for each partition,
and the destination's brokers have said that they would let the topic be created.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import NoReturn
from uuid import UUID

from twinlog.admin import state as admin_state
from twinlog.admin.recreate import check_possible, wait_gone
from twinlog.admin.starting import StartRequest, start_topics
from twinlog.config.mirror import MirrorConfig
from twinlog.control import anew
from twinlog.control.anew import Anew
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState
from twinlog.control.records import NO_TOPIC_ID, MirrorRecord, TopicRecord
from twinlog.errors import (
    AuthorizationFailed,
    BrokerError,
    RetryLater,
    TopicAlreadyExists,
    TwinlogError,
    UnknownTopicOrPartition,
)
from twinlog.names import ids_differ
from twinlog.relay.decide import TRUNCATED
from twinlog.relay.prefix import DELETE_TOO
from twinlog.relay.rolling import POLICY, RATIO, ROLL, Found, read_before
from twinlog.state.log import StateLog
from twinlog.sync.configs import read_current, read_source
from twinlog.sync.topics import is_empty, read_topics, spans
from twinlog.wire.cluster import Cluster, TopicInfo
from twinlog.wire.ops import ConfigEntry
from twinlog.wire.ops_admin import create_topic
from twinlog.wire.ops_delete import delete_topic_by_id

log = logging.getLogger("twinlog.anew")

START_WITHIN_S = 30.0
# Topics of a mirror that are being made anew at a time; the others wait for a later refresh.
AT_A_TIME = 10
# For how long a refresh waits for the partitions of all of them to end; the next one goes on.
REST_WITHIN_S, POLL_S = 15.0, 0.1
# After this a refresh begins, or finishes, no further topic, so that the mirror's syncs are not held up for long.
BEGIN_WITHIN_S, FINISH_WITHIN_S = 15.0, 60.0
# Behind the first broker that no longer knows a deleted topic, the others are some milliseconds late.
ALL_KNOW_S = 1.0
# Between two times that the same topic is made anew, and after one that was refused.
APART_S = 300.0
# A broker with delete.topic.enable=false.
DELETION_DISABLED = 73
# What an operator's reassignment of replicas sets for itself, about replicas of a topic that is gone.
REASSIGNING = ".replication.throttled.replicas"
SHOWN = 10


class Renewal:
    """The topics that are being made anew, of the mirrors whose coordinator this worker is."""

    def __init__(self, state: StateLog, image: Image) -> None:
        self._state = state
        self._image = image
        # Until when a topic is not begun again; and what refused it, for which of the destination's topics.
        self._not_before: dict[tuple[str, str], float] = {}
        self._refusals: dict[tuple[str, str], tuple[UUID, str]] = {}
        self._tried: dict[tuple[str, str], float] = {}

    async def run(self, mirror: MirrorRecord, config: MirrorConfig, source: Cluster) -> str:
        """Do what is due for the topics of a mirror; returns what could not be done and why."""
        troubles: list[str] = []
        going = await self._begun(mirror, config, source, troubles)
        await self._wait_rested(going)
        until = time.monotonic() + FINISH_WITHIN_S
        for record in going:
            if time.monotonic() > until:
                troubles.append(f"{record.topic} is not made anew yet: others took their time. A later refresh goes on")
                continue
            self._tried[_key(record)] = time.monotonic()
            try:
                await self._finish(record, source)
            except TwinlogError as error:
                troubles.append(f"{record.topic} is not made anew: {error}")
        return "; ".join(troubles)

    async def _begun(
        self, mirror: MirrorRecord, config: MirrorConfig, source: Cluster, troubles: list[str]
    ) -> list[TopicRecord]:
        """The topics that are under way, some of them begun now; so many at a time, the others later."""
        records = self._image.topics_of(mirror.mirror)
        going: list[TopicRecord] = []
        until = time.monotonic() + BEGIN_WITHIN_S
        # A topic that takes long is no reason that another one never has its turn.
        for record in sorted(records, key=lambda one: (not anew.under_way(one), self._tried.get(_key(one), 0.0))):
            try:
                if anew.under_way(record):
                    going += await self._kept_going(record, config)
                elif self._is_due(record, config, troubles) and len(going) < AT_A_TIME and time.monotonic() < until:
                    self._tried[_key(record)] = time.monotonic()
                    going += await self._begin(record, source)
            except TwinlogError as error:
                troubles.append(f"{record.topic} is not made anew: {error}")
        return going

    async def _kept_going(self, record: TopicRecord, config: MirrorConfig) -> list[TopicRecord]:
        """The topic, unless the mirror no longer says that it is to be made anew: then it goes on as it was."""
        if config.follows_truncated(record.topic) or anew.is_deleting(record):
            return [record]
        if await admin_state.change(self._state.cluster, self._state, lambda image: anew.withdraw(image, record)):
            log.info("mirror %s: topic %s is not made anew, as the mirror says now", record.mirror, record.topic)
        return []

    def _is_due(self, record: TopicRecord, config: MirrorConfig, troubles: list[str]) -> bool:
        if record.desired is not DesiredState.MIRRORING or not config.follows_truncated(record.topic):
            return False
        if time.monotonic() >= self._not_before.get(_key(record), 0.0):
            return bool(anew.truncated(self._image, record, TRUNCATED))
        topic_id, refused = self._refusals.get(_key(record), (NO_TOPIC_ID, ""))
        if refused and topic_id == record.destination_topic_id:
            troubles.append(f"{record.topic} is not made anew: {refused}")
        return False

    async def _begin(self, record: TopicRecord, source: Cluster) -> list[TopicRecord]:
        """Let the topic's partitions end; returns its record by then, none where it has changed meanwhile."""
        if record.source_topic_id == NO_TOPIC_ID:
            raise RetryLater(
                f"The brokers of the source (before Kafka 2.8) give topic '{record.topic}' no id, so one that was "
                f"truncated cannot be told from one that was created again. Nothing is deleted. Stop the topic, delete "
                f"it at the destination, then start it again."
            )
        await _check_source(source, record)
        ours = await self._ours(record)
        what = Anew(min(len(part.replicas) for part in ours.partitions.values()), await self._kept(record))
        await self._check_can_be_made(record, what, source)
        told = await self._told(record, ours)
        begun = await admin_state.change(
            self._state.cluster, self._state, lambda image: anew.begin(image, record, what)
        )
        if begun is None:
            return []
        self._not_before[_key(record)] = time.monotonic() + APART_S
        self._refusals.pop(_key(record), None)
        log.warning("mirror %s: %s", record.mirror, told)
        return [begun]

    async def _ours(self, record: TopicRecord) -> TopicInfo:
        """The destination's topic, which is the one that is mirrored."""
        found, failed = await read_topics(self._state.cluster, [record.topic])
        if record.topic not in found:
            raise failed.get(record.topic) or RetryLater(
                f"Topic '{record.topic}' is not there at the destination. Stop the topic, then start it again to have "
                f"it copied anew."
            )
        ours = found[record.topic]
        check_possible(ours)
        if ours.id != record.destination_topic_id:
            raise RetryLater(
                f"Topic '{record.topic}' is another one at the destination ({ours.id}) than the one mirrored "
                f"({record.destination_topic_id}). It is left alone. Stop the topic, keep what you need of it, delete "
                f"it there, then start it again."
            )
        return ours

    async def _kept(self, record: TopicRecord) -> Mapping[str, str]:
        """The configs that the new topic is to have of the old one, beside what every start gives it."""
        told = await read_current(self._state.cluster, record.topic)
        before = [one.configs_before for one in anew.states(self._image, record) if one.configs_before]
        return kept_configs(told, before[0] if before else "")

    async def _check_can_be_made(self, record: TopicRecord, what: Anew, source: Cluster) -> None:
        """Ask, before anything is deleted, for what the making of the new topic needs. Raises AuthorizationFailed."""
        told = (await read_source(source, [record.topic]))[record.topic]
        if isinstance(told, AuthorizationFailed):
            raise told
        try:
            await create_topic(
                self._state.cluster,
                record.topic,
                partitions=record.partitions,
                replication_factor=what.replication_factor,
                validate_only=True,
            )
        except TopicAlreadyExists:
            return  # brokers look at the right first
        except AuthorizationFailed as missing:
            raise AuthorizationFailed(
                f"{missing} The right needed is CREATE on topic '{record.topic}' or on the destination cluster. "
                f"Nothing is deleted."
            ) from missing

    async def _told(self, record: TopicRecord, ours: TopicInfo) -> str:
        """What the log says of a topic that is deleted: all that will be left of it."""
        logs = await spans(self._state.cluster, [ours])
        held = ", ".join(f"{where} offsets {span.start} to {span.end - 1}" for where, span in sorted(logs.items()))
        why = " ".join(one.error for one in anew.truncated(self._image, record, TRUNCATED))
        return (
            f"the destination of topic {record.topic} is deleted and made anew, as "
            f"mirror.support.unclean.leader.election says; what the source has no more is lost there, too. It holds "
            f"{held}. {why}"
        )

    async def _wait_rested(self, going: Sequence[TopicRecord]) -> None:
        """Wait until every partition of all these topics has ended, or for as long as a refresh may."""
        deadline = time.monotonic() + REST_WITHIN_S
        # What the followed state says has no event.
        while time.monotonic() < deadline and any(map(self._moves, going)):  # noqa: ASYNC110  # above
            await asyncio.sleep(POLL_S)

    def _moves(self, record: TopicRecord) -> bool:
        now = self._image.topic(record.mirror, record.topic)
        followed = now is not None and now.anew != ""
        return not followed or bool(anew.unrested(self._image, record))

    async def _finish(self, record: TopicRecord, source: Cluster) -> None:
        """Delete the old topic and start the new one, where every partition has ended and nobody took it back."""
        moving = anew.unrested(self._image, record)
        if moving:
            raise RetryLater(
                f"Partitions {moving[:SHOWN]} of topic '{record.topic}' have not ended yet. A later refresh goes on; "
                f"where they never do, see with --describe which worker has them, and whether it lives."
            )
        await _check_source(source, record)
        now = await self._confirmed(record)
        if now is None:
            return
        await self._delete(now, source)
        name, told = record.topic, Anew.read(record.anew)
        request = StartRequest(
            mirror=record.mirror,
            include=(name,),
            replication_factor=told.replication_factor,
            start_at="earliest",
            discovered=frozenset({name}),
            anew=told,
        )
        result = await start_topics(self._state.cluster, self._state, request, timeout_s=START_WITHIN_S)
        if name not in result.started:
            raise result.failed.get(name) or RetryLater(
                f"Topic '{name}' is not found at the source just now. A later refresh creates it; stop the topic where "
                f"that is not wanted."
            )
        log.info("mirror %s: topic %s was made anew at the destination", record.mirror, name)

    async def _confirmed(self, record: TopicRecord) -> TopicRecord | None:
        """The topic's record by the state as it is now, where every partition has ended.

        None: nothing is left to do. An operator has taken it back, or it is made anew already, which is not read yet.
        """
        image = await admin_state.load(self._state)
        now = image.topic(record.mirror, record.topic)
        if now is None or not anew.under_way(now) or now.destination_topic_id != record.destination_topic_id:
            return None
        moving = anew.unrested(image, now)
        if moving:
            raise RetryLater(
                f"Partitions {moving[:SHOWN]} of topic '{now.topic}' have begun again. A later refresh goes on once "
                f"they have ended."
            )
        return now

    async def _delete(self, now: TopicRecord, source: Cluster) -> None:
        """Delete the old topic where it is still there, and wait until it is gone.

        By its id: a new one of its name is never met. Where that is refused, the mirror goes on as it was before.
        """
        found, failed = await read_topics(self._state.cluster, [now.topic])
        if failed:
            raise failed[now.topic]
        ours = found.get(now.topic)
        if ours is None:
            return
        if ids_differ(ours.id, now.destination_topic_id):
            await self._check_empty(ours)
            return
        try:
            await self._check_can_be_made(now, Anew.read(now.anew), source)
        except AuthorizationFailed as refused:
            await self._refused(now, refused)
        told = await admin_state.change(self._state.cluster, self._state, lambda image: anew.delete(image, now))
        if told is None:
            raise RetryLater(
                f"Topic '{now.topic}' has been changed by a command just before it was deleted, so it was not. A later "
                f"refresh looks again."
            )
        try:
            await delete_topic_by_id(self._state.cluster, ours.name, ours.id)
        except UnknownTopicOrPartition:
            log.info("topic %s has been deleted by another worker", ours.name)
        except (AuthorizationFailed, BrokerError) as refused:
            if isinstance(refused, BrokerError) and refused.code != DELETION_DISABLED:
                raise
            missing = AuthorizationFailed(
                f"{refused} The right needed at the destination is DELETE on topic '{ours.name}', and its brokers must "
                f"not run with delete.topic.enable=false."
            )
            await self._refused(told, missing)
        await wait_gone(self._state.cluster, ours, "It is created anew at a later refresh.")
        await asyncio.sleep(ALL_KNOW_S)

    async def _refused(self, record: TopicRecord, missing: AuthorizationFailed) -> NoReturn:
        """Let the mirror go on with the old topic, since the brokers do not let it be made anew, and say so."""
        why = AuthorizationFailed(f"{missing} The mirror goes on with the topic as it is.")
        self._not_before[_key(record)] = time.monotonic() + APART_S
        self._refusals[_key(record)] = (record.destination_topic_id, str(why))
        await admin_state.change(self._state.cluster, self._state, lambda image: anew.withdraw(image, record))
        raise why from missing

    async def _check_empty(self, ours: TopicInfo) -> None:
        """What stands there instead is the new topic, unless it holds something: then it is somebody else's."""
        if not is_empty(ours, await spans(self._state.cluster, [ours])):
            raise RetryLater(
                f"Somebody made a topic '{ours.name}' that holds records at the destination. It is left alone. Delete "
                f"it, and the mirror makes its own; or stop the topic."
            )


def kept_configs(told: Mapping[str, ConfigEntry], before: str) -> dict[str, str]:
    """What a topic sets for itself: without what serves a moment, and with what a first copy holds as it was before."""
    own = {name: entry.value for name, entry in told.items() if entry.overridden and entry.value is not None}
    own = {name: value for name, value in own.items() if not name.endswith(REASSIGNING)}
    if not before:
        return own
    if Found({name: str(told[name].value) for name in (ROLL, RATIO)}, {}).ours:
        own = {name: value for name, value in (own | read_before(before)).items() if value or name not in {ROLL, RATIO}}
    if own.get(POLICY) == DELETE_TOO[POLICY]:
        own[POLICY] = "compact"  # a first copy fills only such a topic
    return own


def _key(record: TopicRecord) -> tuple[str, str]:
    return record.mirror, record.topic


async def _check_source(source: Cluster, record: TopicRecord) -> None:
    """Refuse to touch the destination unless the source has the topic, and all of it can be read."""
    found, failed = await read_topics(source, [record.topic])
    there = found.get(record.topic)
    if there is None or ids_differ(record.source_topic_id, there.id):
        raise failed.get(record.topic) or RetryLater(
            f"Topic '{record.topic}' is not there at the source any more, or it is another one of that name. Stop the "
            f"topic; where it was created again, delete it at the destination, then start it again."
        )
    if len(await spans(source, [there])) != len(there.partitions):
        raise RetryLater(
            f"Topic '{record.topic}' has partitions at the source that cannot be read now. It is tried again; see "
            f"whether each has a leader there."
        )
