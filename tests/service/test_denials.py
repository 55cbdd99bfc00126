"""When a worker denies others to write, that it is noted before, and that a stop takes it away."""

import asyncio
import logging
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.config.acls import Acl, denial
from twinlog.config.mirror import MirrorConfig
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import (
    NO_TOPIC_ID,
    Change,
    MirrorRecord,
    PartitionRecord,
    Skipped,
    SkippedRecord,
    TopicRecord,
)
from twinlog.errors import AuthorizationFailed, TwinlogError
from twinlog.service import acls as acls_module
from twinlog.service import denials as service
from twinlog.service.acls import Acls
from twinlog.sync import denials

CONFIGS = {"bootstrap.servers": "a:1", "mirror.acls.deny.writes": "true"}
CONFIG = MirrorConfig.from_properties(CONFIGS, "test")


class _Bench:
    """A mirror of one topic, and a destination whose ACLs are a set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.image = Image([MirrorRecord("m", CONFIGS, "S")])
        self.topic(DesiredState.MIRRORING, PartitionState.MIRRORING)
        self.there: set[Acl] | None = set()
        self.trouble = self.lost = ""
        self.problem: TwinlogError | None = None
        self.events: list[str] = []
        self.meanwhile: Any = lambda: None
        cluster: Any = SimpleNamespace()
        self.acls = Acls(cluster, self.image, self)  # type: ignore[arg-type]  # the keeper is played here
        monkeypatch.setattr(acls_module, "LOOK_EVERY_S", 0.01)
        monkeypatch.setattr(acls_module, "GIVE_AGAIN_S", 0.05)
        for name in ("read", "trouble", "lost", "open_without_acl", "deny", "allow"):
            monkeypatch.setattr(denials, name, getattr(self, f"_{name}"))

    def topic(self, desired: DesiredState, state: PartitionState) -> None:
        """Let the topic be so."""
        self.image.apply(TopicRecord("m", "t", desired, NO_TOPIC_ID, NO_TOPIC_ID, 1))
        self.image.apply(PartitionRecord("m", "t", 0, state))

    def stopped(self) -> None:
        """Let it be at rest."""
        self.topic(DesiredState.STOPPED, PartitionState.STOPPED)

    async def put(self, *changes: Change) -> None:
        """As if committed and replayed."""
        for change in changes:
            assert isinstance(change, SkippedRecord)
            self.events.append(f"noted {','.join(change.denied)}")
            self.image.apply(change)

    async def refresh(self, *, owned: bool = True) -> tuple[list[Skipped], int]:
        """Run it once."""
        skipped, errors = await self.acls.denials.refresh("m", CONFIG, lambda: owned)
        return list(skipped), errors

    async def look(self, seconds: float = 0.2, *, owned: bool = True) -> None:
        """Let the loop look for a while."""
        running = asyncio.create_task(self.acls.keep_giving(lambda _: owned))
        await asyncio.sleep(seconds)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    @property
    def noted(self) -> tuple[str, ...]:
        """What is stored."""
        record = self.image.skipped.get("m")
        return record.denied if record else ()

    async def _read(self, _cluster: Any) -> frozenset[Acl] | None:
        return None if self.there is None else frozenset(self.there)

    async def _trouble(self, _cluster: Any) -> str:
        return self.trouble

    async def _lost(self, _cluster: Any, _topics: Any) -> str:
        return self.lost

    async def _open_without_acl(self, _cluster: Any) -> bool:
        return False

    async def _deny(self, _cluster: Any, topics: Collection[str]) -> tuple[frozenset[str], tuple[Skipped, ...]]:
        self.meanwhile()
        assert self.there is not None
        if self.problem is not None:
            return frozenset(topics), tuple(Skipped("acl", topic, str(self.problem)) for topic in topics)
        self.there |= set(map(denial, topics))
        self.events.append("denied")
        return frozenset(), ()

    async def _allow(self, _cluster: Any, topics: Collection[str], **_: Any) -> dict[str, TwinlogError]:
        if self.problem is not None:
            return dict.fromkeys(topics, self.problem)
        assert self.there is not None
        self.there -= set(map(denial, topics))
        self.events.append("allowed")
        return {}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> _Bench:
    """A worker that owns the mirror."""
    return _Bench(monkeypatch)


async def test_it_is_noted_before_it_is_denied_and_until_it_is_allowed(bench: _Bench) -> None:
    """So whoever takes the mirror over knows of it, whenever a worker ends."""
    assert await bench.refresh() == ([], 0)
    assert await bench.refresh() == ([], 0)
    await bench.look()
    assert bench.there == {denial("t")}
    bench.stopped()
    await bench.look()
    assert bench.there == set()
    assert bench.events == ["noted t", "denied", "allowed", "noted "]


async def test_the_worker_that_takes_over_allows_what_is_noted(bench: _Bench) -> None:
    """One that does not own the mirror leaves it alone."""
    bench.image.apply(SkippedRecord("m", 1, denied=("t",)))
    bench.there = {denial("t")}
    bench.stopped()
    await bench.look(owned=False)
    assert bench.there == {denial("t")}
    await bench.look()
    assert (bench.there, bench.noted) == (set(), ())


async def test_somebody_elses_is_never_touched(bench: _Bench) -> None:
    """It was there before, so it is not noted."""
    bench.there = {denial("t")}
    assert await bench.refresh() == ([], 0)
    bench.stopped()
    await bench.look()
    assert bench.there == {denial("t")}
    assert bench.events == []


async def test_a_stop_that_comes_while_it_is_denied_is_not_overlooked(bench: _Bench) -> None:
    """Even where a command has allowed it, and forgotten it, in that moment."""

    def stop() -> None:
        bench.stopped()
        bench.image.apply(SkippedRecord("m", 2**62))

    bench.meanwhile = stop
    await bench.refresh()
    assert bench.there == {denial("t")}
    await bench.look(owned=False)
    assert bench.there == set()


@pytest.mark.parametrize("gone", ["config", "mirror"])
async def test_what_is_no_longer_asked_for_is_allowed_again(bench: _Bench, gone: str) -> None:
    """The config is off, or the mirror is deleted; a refresh with the config off does nothing by itself."""
    await bench.refresh()
    if gone == "config":
        bench.image.apply(MirrorRecord("m", {"bootstrap.servers": "a:1"}, "S"))
        off = MirrorConfig.from_properties({"bootstrap.servers": "a:1"}, "test")
        assert await bench.acls.denials.refresh("m", off, lambda: True) == ((), 0)
    else:
        del bench.image.mirrors["m"]
    await bench.look()
    assert bench.there == set()


async def test_what_cannot_be_allowed_is_tried_again(bench: _Bench, caplog: pytest.LogCaptureFixture) -> None:
    """It is counted, said, and stays noted."""
    await bench.refresh()
    bench.stopped()
    bench.problem = AuthorizationFailed("Grant ALTER on CLUSTER.")
    with caplog.at_level(logging.WARNING):
        await bench.look()
    assert 1 <= bench.acls.errors["m"] <= 6
    assert "could not be taken away, which is tried again in a while: Grant ALTER" in caplog.text
    assert bench.noted == ("t",)
    bench.problem = None
    await bench.look()
    assert (bench.there, bench.noted) == (set(), ())


async def test_whoever_is_no_super_user_denies_nothing_and_says_so_once(
    bench: _Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """It is listed at each refresh."""
    bench.trouble = "no super user"
    with caplog.at_level(logging.WARNING):
        assert await bench.refresh() == ([Skipped("acl", "DENY WRITE", "no super user")], 0)
        assert (await bench.refresh())[0] != []
    assert caplog.text.count("no super user") == 1
    assert (bench.there, bench.noted) == (set(), ())


async def test_it_is_tried_again_in_a_while_whether_it_is_one_by_now(
    bench: _Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trying makes an ACL and deletes it, which is nothing for every refresh."""
    bench.trouble = "no super user"
    await bench.refresh()
    bench.trouble = ""
    assert (await bench.refresh())[0] != []
    monkeypatch.setattr(service, "TRY_AGAIN_S", 0.0)
    bench.acls.denials = service.Denials(SimpleNamespace(), bench.image, bench.acls)  # type: ignore[arg-type]  # played
    bench.trouble = "no super user"
    await bench.refresh()
    bench.trouble = ""
    assert await bench.refresh() == ([], 0)
    assert bench.there == {denial("t")}


async def test_a_right_that_is_lost_later_has_all_of_it_taken_back(bench: _Bench) -> None:
    """Mirroring comes before keeping others out."""
    await bench.refresh()
    bench.lost, bench.trouble = "lost", "no super user"
    skipped, errors = await bench.refresh()
    assert (skipped, errors) == ([Skipped("acl", "DENY WRITE", "lost")], 1)
    assert (bench.there, bench.noted) == (set(), ())


async def test_what_is_refused_is_not_noted_any_more(bench: _Bench) -> None:
    """Else somebody's own could be taken for it later."""
    bench.problem = AuthorizationFailed("no more ACLs")
    skipped, errors = await bench.refresh()
    assert ([item.reason for item in skipped], errors) == (["no more ACLs"], 1)
    assert bench.noted == ()


async def test_without_an_authorizer_or_topics_or_the_mirror_nothing_is_denied(bench: _Bench) -> None:
    """The first is listed."""
    assert await bench.refresh(owned=False) == ([], 0)
    bench.there = None
    assert "SECURITY_DISABLED" in (await bench.refresh())[0][0].reason
    bench.stopped()
    assert await bench.refresh() == ([], 0)
    assert bench.events == []
