"""Committed offsets of consumer groups: what the source has, within what the destination's logs hold (KIP-1279).

While a topic is mirrored the source's value counts, also where it goes backwards; once it is stopped nothing is
touched. A group that has members at the destination, or whose name means something else there, is left alone.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from twinlog.config.mirror import MirrorConfig
from twinlog.names import TopicPartition
from twinlog.sync import group_pass, share_groups
from twinlog.sync.group_pass import Offsets
from twinlog.sync.group_rules import GroupsDone, Sides
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops_groups import ListedGroup, commit_offsets, committed_at, committed_offsets


class _ConsumerGroups:
    """Groups of the classic and the consumer protocol; others but share groups are looked at to be refused."""

    name = "consumer"
    others = "share or streams"
    types: tuple[str, ...] = ()
    optional = ""
    rare = False

    def takes(self, group: ListedGroup) -> bool:
        return group.kind != "share"

    async def many(self, cluster: Cluster, groups: Collection[ListedGroup]) -> Mapping[str, Offsets]:
        return await committed_at(cluster, groups)

    async def read(self, cluster: Cluster, group: str) -> Offsets:
        return await committed_offsets(cluster, group)

    async def read_here(self, cluster: Cluster, group: str, *, listed: bool) -> Offsets:
        # A group that the destination does not list has committed nothing there.
        return await committed_offsets(cluster, group) if listed else {}

    async def write(self, cluster: Cluster, group: str, offsets: Offsets) -> Mapping[TopicPartition, int]:
        return await commit_offsets(cluster, group, offsets)


_CONSUMER: Final = _ConsumerGroups()


async def sync(
    source: Cluster,
    destination: Cluster,
    config: MirrorConfig,
    topics: Collection[str],
    still: Callable[[str], bool] = lambda _topic: True,
) -> GroupsDone:
    """Bring the groups' offsets of mirrored `topics` over, as long as each is `still` mirrored.

    Raises where the groups of no source broker, or of some destination broker, can be listed.
    """
    return await group_pass.sync(_CONSUMER, Sides(source, destination, config, topics, still))


async def behind(
    source: Cluster, destination: Cluster, config: MirrorConfig, topics: Collection[str]
) -> dict[str, list[str]]:
    """Return, by topic, the groups whose offsets at the destination are not what a sync would make them.

    Share groups count, too; groups that no sync would touch are left out. Raises as `sync` does, also for a single
    group.
    """
    if not topics:
        return {}
    sides = Sides(source, destination, config, topics)
    late = await group_pass.behind(_CONSUMER, sides)
    for topic, groups in (await share_groups.behind(sides)).items():
        late[topic] = sorted([*late.get(topic, []), *groups])
    return late
