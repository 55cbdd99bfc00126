"""The way round of a topic that the source has from the destination itself, by the states of the clusters between."""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from twinlog.admin import loops
from twinlog.admin.loops import Loops, find_loops
from twinlog.config.mirror import MirrorConfig
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState
from twinlog.control.records import NO_TOPIC_ID, MirrorRecord, TopicRecord
from twinlog.errors import Unreachable


class FakeCluster:
    """A cluster with an id."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id


def fed(source: str, *topics: str, desired: DesiredState = DesiredState.MIRRORING, **configs: str) -> Image:
    """The state of a cluster that mirrors topics from `source`, by a mirror named after that; `_` stands for a dot."""
    props = {"bootstrap.servers": f"{source}:1", **{key.replace("_", "."): value for key, value in configs.items()}}
    records = [TopicRecord(f"from-{source}", name, desired, NO_TOPIC_ID, NO_TOPIC_ID, 1) for name in topics]
    return Image([MirrorRecord(f"from-{source}", props, source), *records])


async def found(
    states: Mapping[str, Image | str],
    monkeypatch: pytest.MonkeyPatch,
    topics: Collection[str],
    *,
    upstream: bool = True,
) -> Loops:
    """Start at cluster S, as the source of a mirror into cluster D; `asked` are the clusters that were reached."""

    @asynccontextmanager
    async def connected(config: MirrorConfig, *, timeout_s: float) -> AsyncIterator[FakeCluster]:
        assert timeout_s <= loops.WITHIN_S
        name = config.raw["bootstrap.servers"].removesuffix(":1")
        if name not in states:
            raise Unreachable(f"{name} does not answer.")
        yield FakeCluster(name)

    async def state_of(cluster: FakeCluster, *, timeout_s: float) -> Image | str:
        assert timeout_s <= loops.WITHIN_S
        return states[cluster.cluster_id]

    monkeypatch.setattr(loops, "connected", connected)
    monkeypatch.setattr(loops, "state_of", state_of)
    source: Any = FakeCluster("S")
    return await find_loops(source, states["S"], "D", topics, upstream=upstream)


async def test_a_ring_of_two_three_and_four_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every mirror of the way is told; a topic that is not in the ring is not."""
    two = await found({"S": fed("D", "t", "u")}, monkeypatch, ["t"])
    assert two.ways == {"t": "Cluster S mirrors it by mirror 'from-D' from cluster D."}
    ring = {"S": fed("A", "t", "u"), "A": fed("B", "t"), "B": fed("D", "t")}
    four = await found(ring, monkeypatch, ["t", "u"])
    assert four.ways == {
        "t": "Cluster S mirrors it by mirror 'from-A' from cluster A. Cluster A mirrors it by mirror 'from-B' from "
        "cluster B. Cluster B mirrors it by mirror 'from-D' from cluster D."
    }
    assert not two.notes
    assert not four.notes


async def test_what_is_stopped_or_comes_from_elsewhere_is_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a ring that does not pass here, and it is followed once; a cluster without mirrors is an end."""
    stopped = fed("D", "t", desired=DesiredState.STOPPED)
    assert (await found({"S": stopped}, monkeypatch, ["t"])).ways == {}
    paused = fed("D", "t", desired=DesiredState.PAUSED)
    assert (await found({"S": paused}, monkeypatch, ["t"])).ways != {}
    elsewhere = await found({"S": fed("A", "t"), "A": fed("S", "t")}, monkeypatch, ["t"])
    assert elsewhere == Loops()
    assert await found({"S": fed("A", "t"), "A": Image()}, monkeypatch, ["t"]) == Loops()


async def test_what_cannot_be_asked_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that may not be read, a cluster that is down, one whose connection would need a secret."""
    hidden = await found({"S": "No READ."}, monkeypatch, ["t"])
    assert hidden.notes == ["Whether the source mirrors these topics from here could not be checked: No READ."]
    down = await found({"S": fed("A", "t")}, monkeypatch, ["t"])
    assert (down.ways, down.notes) == ({}, [])
    assert down.unchecked["t"].endswith("from cluster A. Beyond that: A does not answer.")
    for configs in (
        {"security_protocol": "SASL_SSL"},
        {"ssl_key_password": "${env:X}"},
        {"ssl_keystore_location": "/k.pem"},
    ):
        secret = await found({"S": fed("A", "t", **configs), "A": fed("D", "t")}, monkeypatch, ["t"])
        assert secret.ways == {}
        assert "needs secrets, which are not used for another cluster's mirror" in secret.unchecked["t"]
    assert await found({"S": fed("A", "t"), "A": fed("D", "t")}, monkeypatch, ["t"], upstream=False) == Loops()


async def test_the_number_of_clusters_asked_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of many clusters ends in a note."""
    chain = {str(number): fed(str(number + 1), "t") for number in range(20)}
    result = await found({"S": fed("0", "t"), **chain}, monkeypatch, ["t"])
    assert result.ways == {}
    assert f"more than {loops.MOST_CLUSTERS} clusters" in result.unchecked["t"]
