"""A mirror's source as commands see it: the right cluster, and what it mirrors from here."""

import asyncio
from typing import Any

import pytest

from twinlog.admin import sources
from twinlog.admin.sources import check_identity, connected, reverse_mirrors
from twinlog.config.mirror import MirrorConfig
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState
from twinlog.control.records import NO_TOPIC_ID, MirrorRecord, TopicRecord
from twinlog.errors import AuthorizationFailed, InvalidConfig, InvalidRequest, RetryLater

MIRROR = MirrorRecord("m", {"bootstrap.servers": "a:1"}, "S")


class FakeCluster:
    """A cluster with an id."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id


def test_another_cluster_behind_the_addresses_is_named() -> None:
    """The addresses of the command, or the mirror's own, and both ids; an unknown id proves nothing."""
    other: Any = FakeCluster("X")
    with pytest.raises(InvalidRequest, match="Behind b:2 is cluster X, and mirror 'm' mirrors cluster S"):
        check_identity(MIRROR, other, given="b:2")
    with pytest.raises(InvalidRequest, match="Behind a:1 is cluster X"):
        check_identity(MIRROR, other, given=None)
    for mirror, cluster_id in ((MIRROR, "S"), (MIRROR, ""), (MirrorRecord("m", {}, ""), "X")):
        same: Any = FakeCluster(cluster_id)
        check_identity(mirror, same, given=None)


async def test_a_reference_that_leads_nowhere_is_found_before_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is dialled with half of the settings."""
    monkeypatch.delenv("NOT_SET_HERE", raising=False)
    props = {"bootstrap.servers": "127.0.0.1:1", "ssl.key.password": "${env:NOT_SET_HERE}"}
    with pytest.raises(InvalidConfig, match="NOT_SET_HERE"):
        async with connected(MirrorConfig.from_properties(props, "test"), timeout_s=0.2):
            pass


class FakeLog:
    """The source's own state; `image` is what a load gives, or raises."""

    image: Image | Exception = Image()
    delay_s = 0.0

    @classmethod
    async def open(cls, _cluster: Any, *, create: bool) -> "FakeLog":
        """As `StateLog.open`."""
        assert not create
        return cls()

    async def load(self, *, timeout_s: float) -> Image:
        """As `StateLog.load`."""
        await asyncio.sleep(min(timeout_s, self.delay_s) + self.delay_s)
        if isinstance(self.image, Exception):
            raise self.image
        return self.image


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> type[FakeLog]:
    """The state at the source, to be filled by the test."""

    class Log(FakeLog):
        pass

    monkeypatch.setattr(sources, "StateLog", Log)
    return Log


async def test_only_active_topics_mirrored_from_here_are_in_the_way(there: type[FakeLog]) -> None:
    """Stopped ones, and mirrors of other clusters, are not."""

    def topic(mirror: str, name: str, desired: DesiredState) -> TopicRecord:
        return TopicRecord(mirror, name, desired, NO_TOPIC_ID, NO_TOPIC_ID, 1)

    there.image = Image(
        [
            MirrorRecord("back", {}, "D"),
            MirrorRecord("else", {}, "E"),
            topic("back", "active", DesiredState.MIRRORING),
            topic("back", "paused", DesiredState.PAUSED),
            topic("back", "stopped", DesiredState.STOPPED),
            topic("else", "other", DesiredState.MIRRORING),
            topic("gone", "orphan", DesiredState.MIRRORING),
        ]
    )
    cluster: Any = FakeCluster("S")
    found, notes = await reverse_mirrors(cluster, "D", timeout_s=1)
    assert found == {"active": "back", "paused": "back"}
    assert notes == ()


async def test_what_may_not_be_read_is_said(there: type[FakeLog]) -> None:
    """A note where a right is missing or there is no answer; trouble that passes is an error as anywhere."""
    cluster: Any = FakeCluster("S")
    there.image = AuthorizationFailed("No READ.")
    found, notes = await reverse_mirrors(cluster, "D", timeout_s=1)
    assert (found, len(notes)) == ({}, 1)
    assert "could not be checked: No READ." in notes[0]
    there.delay_s = 0.1
    _, notes = await reverse_mirrors(cluster, "D", timeout_s=0.05)
    assert "no answer within 0.05 s" in notes[0]
    there.delay_s, there.image = 0.0, RetryLater("Later.")
    with pytest.raises(RetryLater):
        await reverse_mirrors(cluster, "D", timeout_s=1)
