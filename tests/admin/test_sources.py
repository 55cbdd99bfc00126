"""A mirror's source as commands see it: the right cluster, and what its own state says."""

import asyncio
from typing import Any

import pytest

from twinlog.admin import sources
from twinlog.admin.sources import check_identity, connected, state_of
from twinlog.config.mirror import MirrorConfig
from twinlog.control.image import Image
from twinlog.control.records import MirrorRecord
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


async def test_a_state_that_may_not_be_read_is_told_as_a_reason(there: type[FakeLog]) -> None:
    """Where a right is missing or there is no answer; trouble that passes is an error as anywhere."""
    cluster: Any = FakeCluster("S")
    assert await state_of(cluster, timeout_s=1) is there.image
    there.image = AuthorizationFailed("No READ.")
    assert await state_of(cluster, timeout_s=1) == "No READ."
    there.delay_s = 0.1
    assert await state_of(cluster, timeout_s=0.05) == "no answer within 0.05 s."
    there.delay_s, there.image = 0.0, RetryLater("Later.")
    with pytest.raises(RetryLater):
        await state_of(cluster, timeout_s=1)
