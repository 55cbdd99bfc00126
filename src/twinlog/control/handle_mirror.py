"""Alter and delete a mirror (KIP-1279, section 2.3)."""

from dataclasses import replace

from twinlog.config.mirror import MirrorConfig, config_table, same_connection
from twinlog.control.anew import check_not_renewed
from twinlog.control.checks import find_mirror
from twinlog.control.commands import Alter, Altered, Delete, Deleted, Handled
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import Change, Tombstone, TopicRecord
from twinlog.control.selection import Selection
from twinlog.errors import ClusterMirrorNotEmpty, InvalidClusterMirrorState, InvalidRequest

SHOWN = 10
"""Partitions that an error names at most."""

_NAMES = {name: key.name for key in config_table() for name in (key.name, *key.aliases)}


def alter(image: Image, command: Alter) -> Handled[Altered]:
    """Set and remove configs; active topics that match an exclude now are stopped.

    Raises UnknownClusterMirror, InvalidRequest (nothing to do, or a key both set and removed), InvalidConfig (a key or
    a value, also of what is left when something is removed), InvalidClusterMirrorState (a topic that matches an exclude
    now is being made anew).
    """
    mirror = find_mirror(image, command.mirror)
    _check_alter(command)
    former = MirrorConfig(raw=mirror.configs)  # as stored: what is no longer accepted is put right by this very command
    configs = dict(former.altered(command.configs, removed=command.removed, origin=command.origin).raw)
    names = sorted(mirror.configs.keys() | configs.keys())
    changed = tuple(name for name in names if mirror.configs.get(name) != configs.get(name))
    if not changed:
        return Handled((), Altered(mirror.mirror, (), reconnects=False))
    stopped = excluded_now(image, mirror.mirror, Selection.of(configs))
    reply = Altered(
        mirror.mirror,
        changed,
        reconnects=not same_connection(mirror.configs, configs),
        stopped=tuple(record.topic for record in stopped),
    )
    return Handled((replace(mirror, configs=configs), *stopped), reply)


def _check_alter(command: Alter) -> None:
    if not command.configs and not command.removed:
        raise InvalidRequest("No configs were given to set or to remove.")
    given = {_NAMES.get(name, name) for name in command.configs}
    for name in command.removed:
        if _NAMES.get(name, name) in given:
            raise InvalidRequest(f"Config '{name}' is given both to be set and to be removed.")


def delete(image: Image, command: Delete) -> Handled[Deleted]:
    """Remove a mirror with all that is stored about it; the topics at the destination stay.

    Raises UnknownClusterMirror, ClusterMirrorNotEmpty, InvalidClusterMirrorState (a partition is not STOPPED yet).
    """
    mirror = find_mirror(image, command.mirror).mirror
    topics = image.topics_of(mirror)
    for topic in topics:
        if topic.desired is not DesiredState.STOPPED:
            raise ClusterMirrorNotEmpty(f"Mirror '{mirror}' still has active or paused topic '{topic.topic}'")
    partitions = [partition for topic in topics for partition in image.partitions_of(mirror, topic.topic)]
    moving = [partition for partition in partitions if partition.state is not PartitionState.STOPPED]
    if moving:
        shown = ", ".join(f"{one.topic}-{one.partition} is {one.state.name}" for one in moving[:SHOWN])
        more = f", and {len(moving) - SHOWN} more" if len(moving) > SHOWN else ""
        raise InvalidClusterMirrorState(
            f"Mirror '{mirror}' has partitions that are not STOPPED yet: {shown}{more}. Delete it once --describe "
            f"shows STOPPED (that needs a running worker)."
        )
    gone: list[Change] = [Tombstone(record.key) for record in (*partitions, *topics)]
    if mirror in image.skipped:
        gone.append(Tombstone(image.skipped[mirror].key))
    gone.append(Tombstone(image.mirrors[mirror].key))
    return Handled(tuple(gone), Deleted(mirror, tuple(topic.topic for topic in topics)))


def excluded_now(image: Image, mirror: str, wanted: Selection) -> list[TopicRecord]:
    """The mirror's active topics that match an exclude, as stopped.

    Raises InvalidClusterMirrorState where one of them is being deleted and made anew.
    """
    excluded = [
        record
        for record in image.topics_of(mirror)
        if record.desired is not DesiredState.STOPPED and wanted.excludes(record.topic)
    ]
    for record in excluded:
        check_not_renewed(record)
    return [replace(record, desired=DesiredState.STOPPED) for record in excluded]
