"""Mirror loops: topics that the source has, by way of any number of clusters, from the destination itself.

Every cluster's state names the mirrors into it, with the addresses of their sources, so a loop is found by asking one
cluster after the other. Nobody else's mirror is trusted with more than a plain connection: an address and a reference
to a secret that stand in another cluster's state would send a secret of this machine to whoever wrote them there.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from twinlog.admin.sources import connected, state_of
from twinlog.config.mirror import MirrorConfig
from twinlog.config.secrets import has_reference
from twinlog.control.describe import ACTIVE
from twinlog.control.image import Image
from twinlog.control.records import MirrorRecord
from twinlog.errors import TwinlogError
from twinlog.wire.cluster import Cluster

MOST_CLUSTERS = 8
"""Further clusters that one start asks at most."""

WITHIN_S = 5.0
"""The time that reaching one of them, and reading its state, may take each."""

_TOO_FAR = f"more than {MOST_CLUSTERS} clusters would have to be asked."


@dataclass(slots=True)
class Loops:
    """What was found, by topic: the way round of one in a loop, and why another could not be checked to its end.

    `notes` are for all topics.
    """

    ways: dict[str, str] = field(default_factory=dict)
    unchecked: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Step:
    """Topics that a cluster gets by one mirror, and the mirrors that lie between it and the destination."""

    mirror: MirrorRecord
    topics: tuple[str, ...]
    way: tuple[str, ...]


async def find_loops(
    source: Cluster, state: Image | str, destination_id: str, topics: Collection[str], *, upstream: bool = True
) -> Loops:
    """Look for `topics` that the source gets from the destination; `state` is the source's (`sources.state_of`).

    Without `upstream` no further cluster is asked: only a loop of two is found.
    """
    found = Loops()
    if isinstance(state, str):
        found.notes.append(f"Whether the source mirrors these topics from here could not be checked: {state}")
        return found
    states: dict[str, Image | str] = {source.cluster_id: state}
    visited = {(source.cluster_id, topic) for topic in topics}
    waiting = _steps(state, topics, source.cluster_id, way=())
    while waiting:
        step = waiting.pop(0)
        beyond = step.mirror.source_cluster_id
        topics = [topic for topic in step.topics if (beyond, topic) not in visited]
        visited |= {(beyond, topic) for topic in topics}
        if beyond == destination_id:
            found.ways.update(dict.fromkeys(topics, " ".join(step.way)))
        elif topics and upstream:
            if beyond not in states:
                states[beyond] = _TOO_FAR if len(states) > MOST_CLUSTERS else await _upstream(step.mirror)
            known = states[beyond]
            if isinstance(known, str):
                found.unchecked.update(dict.fromkeys(topics, f"{' '.join(step.way)} Beyond that: {known}"))
            else:
                waiting += _steps(known, topics, beyond, way=step.way)
    return found


def _steps(state: Image, topics: Collection[str], cluster_id: str, *, way: tuple[str, ...]) -> list[_Step]:
    """The mirrors by which a cluster gets any of the topics now."""
    by_mirror: dict[str, list[str]] = {}
    for name in sorted(topics):
        record = state.active_in(name)
        if record is not None and record.desired in ACTIVE and record.mirror in state.mirrors:
            by_mirror.setdefault(record.mirror, []).append(name)
    return [
        _Step(state.mirrors[mirror], tuple(names), (*way, _sentence(state.mirrors[mirror], cluster_id)))
        for mirror, names in by_mirror.items()
    ]


def _sentence(mirror: MirrorRecord, cluster_id: str) -> str:
    return f"Cluster {cluster_id} mirrors it by mirror '{mirror.mirror}' from cluster {mirror.source_cluster_id}."


async def _upstream(mirror: MirrorRecord) -> Image | str:
    """The state of a mirror's source, or why it is not known."""
    if any(map(has_reference, mirror.configs.values())) or _needs_identity(mirror.configs):
        return "its connection needs secrets, which are not used for another cluster's mirror."
    try:
        async with asyncio.timeout(2 * WITHIN_S):
            config = MirrorConfig.from_properties(mirror.configs, f"the configs of mirror {mirror.mirror}")
            async with connected(config, timeout_s=WITHIN_S) as cluster:
                if cluster.cluster_id != mirror.source_cluster_id:
                    return f"another cluster, {cluster.cluster_id}, is behind its addresses."
                return await state_of(cluster, timeout_s=WITHIN_S)
    except (TwinlogError, TimeoutError) as reason:
        return str(reason) or f"no answer within {2 * WITHIN_S:g} s."


def _needs_identity(configs: Mapping[str, str]) -> bool:
    return "SASL" in configs.get("security.protocol", "").upper() or "ssl.keystore.location" in configs
