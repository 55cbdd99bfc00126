"""Start offsets of share groups: what the source has, within what the destination's logs hold (KIP-1279, KIP-932).

A share group's start offset is the first record that it has not done with. What it has already done with behind that
one is not known to the destination, so it gets those records again. A phase of its own, so that no group is taken for
one of another kind.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from twinlog.config.mirror import MirrorConfig
from twinlog.errors import BrokerError
from twinlog.names import TopicPartition
from twinlog.sync import group_pass
from twinlog.sync.group_pass import Offsets
from twinlog.sync.group_rules import GroupsDone, Sides
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops_groups import Committed, ListedGroup
from twinlog.wire.ops_share import alter_share_start_offsets, share_start_offsets

SHARE: Final = "share"


class _ShareGroups:
    """A start offset is taken for a committed one that has no note."""

    name = SHARE
    others = "consumer or streams"
    types: tuple[str, ...] = (SHARE,)
    optional = "It is a share group, and not both sides can tell and set where such begin"
    rare = True

    def takes(self, group: ListedGroup) -> bool:
        return group.kind == SHARE

    async def many(self, _cluster: Cluster, _groups: Collection[ListedGroup]) -> Mapping[str, Offsets]:
        return {}

    async def read(self, cluster: Cluster, group: str) -> Offsets:
        return {tp: Committed(start) for tp, start in (await share_start_offsets(cluster, group)).items()}

    async def read_here(self, cluster: Cluster, group: str, *, listed: bool) -> Offsets:  # noqa: ARG002  # see below
        # Asked also of one that is not listed, since brokers may be too old.
        try:
            return await self.read(cluster, group)
        except BrokerError as error:
            if error.code != codes.GROUP_ID_NOT_FOUND:
                raise
            return {}

    async def write(self, cluster: Cluster, group: str, offsets: Offsets) -> Mapping[TopicPartition, int]:
        return await alter_share_start_offsets(cluster, group, {tp: one.offset for tp, one in offsets.items()})


_SHARE: Final = _ShareGroups()


async def sync(
    source: Cluster,
    destination: Cluster,
    config: MirrorConfig,
    topics: Collection[str],
    still: Callable[[str], bool] = lambda _topic: True,
) -> GroupsDone:
    """Let share groups begin at the destination where they stand at the source, in mirrored `topics`.

    `still` as in `groups.sync`. Nothing is done where the source has no share groups. Raises as that does.
    """
    return await group_pass.sync(_SHARE, Sides(source, destination, config, topics, still))


async def behind(sides: Sides) -> dict[str, list[str]]:
    """Return, by topic, the share groups that a sync would move. Raises as `sync` does, also for a single group."""
    return await group_pass.behind(_SHARE, sides)
