"""What a refresh does when one of its parts fails: the others go on, and it is listed and counted."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.config.acls import LITERAL, Acl
from twinlog.config.mirror import MirrorConfig
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import NO_TOPIC_ID, Change, MirrorRecord, PartitionRecord, SkippedRecord, TopicRecord
from twinlog.errors import AuthorizationFailed, Unreachable
from twinlog.service import acls as acls_module
from twinlog.service import coordinator as module
from twinlog.service.acls import Acls, own_principal
from twinlog.service.coordinator import Coordinator
from twinlog.sync.acls import AclsDone
from twinlog.wire.cluster import TopicInfo

MIRROR = MirrorRecord("m", {"bootstrap.servers": "a:1"}, "S")
WRITE = Acl("TOPIC", "t", LITERAL, "User:app", "*", "WRITE", "ALLOW")
SETTINGS = SimpleNamespace(security=SimpleNamespace(sasl=False, sasl_mechanism="PLAIN", sasl_username=None))


class _Keeper:
    """Takes over at once what is put."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.put_records: list[Change] = []

    async def put(self, *changes: Change) -> None:
        """As if committed and replayed."""
        self.put_records += changes
        for change in changes:
            self.image.apply(change)


class _Bench:
    """A mirror of one topic."""

    def __init__(self) -> None:
        self.image = Image([MIRROR])
        self.topic(DesiredState.MIRRORING, PartitionState.MIRRORING)
        self.keeper: Any = _Keeper(self.image)
        self.cluster: Any = SimpleNamespace(settings=SETTINGS)
        self.coordinator = Coordinator(self.cluster, SimpleNamespace(), self.image, self.keeper)  # type: ignore[arg-type]
        self.acls: AclsDone | Exception = AclsDone()

    def topic(self, desired: DesiredState, state: PartitionState) -> None:
        """Let the topic be so."""
        self.image.apply(TopicRecord("m", "t", desired, NO_TOPIC_ID, NO_TOPIC_ID, 1))
        self.image.apply(PartitionRecord("m", "t", 0, state))

    async def refresh(self, **configs: str) -> None:
        """Run all syncs once."""
        config = MirrorConfig.from_properties({"bootstrap.servers": "a:1", **configs}, "test")
        source: Any = SimpleNamespace()
        await self.coordinator.run(MIRROR, config, source, lambda: True)

    async def sync_acls(self, *_: Any) -> AclsDone:
        """What the test has said."""
        if isinstance(self.acls, Exception):
            raise self.acls
        return self.acls

    @property
    def stored(self) -> SkippedRecord:
        """What the refresh has left."""
        return self.image.skipped["m"]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> _Bench:
    """Topics cannot be looked up; ACLs are synced as the test says."""
    bench = _Bench()

    async def down(*_: Any) -> Any:
        raise Unreachable("nobody there")

    monkeypatch.setattr(module, "read_topics", down)
    monkeypatch.setattr(acls_module.acls, "sync", bench.sync_acls)
    return bench


async def test_topics_that_cannot_be_looked_up_hold_up_nothing_else(
    bench: _Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The ACLs are synced all the same; the error is listed and counted each time, and said once."""
    bench.acls = AclsDone(held=(WRITE,))
    with caplog.at_level(logging.WARNING):
        await bench.refresh()
        await bench.refresh()
    assert [(item.kind, item.name, item.reason) for item in bench.stored.items] == [
        ("topic", "topic sync", "nobody there")
    ]
    assert bench.stored.held == (WRITE,)
    assert bench.coordinator.topic_metadata_refresh_errors["m"] == 2
    assert bench.coordinator.acl_sync_errors["m"] == 0
    assert caplog.text.count("topic sync: nobody there") == 1
    assert len(bench.keeper.put_records) == 1


async def test_what_is_held_back_survives_a_sync_that_fails(bench: _Bench) -> None:
    """Who cannot be asked any more may be about to be failed over from."""
    bench.acls = AclsDone(held=(WRITE,), held_for=("t",))
    await bench.refresh()
    bench.acls = AuthorizationFailed("Grant DESCRIBE on CLUSTER.")
    await bench.refresh()
    assert (bench.stored.held, bench.stored.held_for) == ((WRITE,), ("t",))
    assert bench.stored.items[-1].name == "acl sync"
    assert bench.coordinator.acl_sync_errors["m"] == 1


async def test_a_mode_that_is_off_holds_nothing_back(bench: _Bench) -> None:
    """Nor what was held back before."""
    bench.acls = AclsDone(held=(WRITE,))
    await bench.refresh()
    bench.acls = AclsDone()
    await bench.refresh(**{"mirror.acls.sync.mode": "off"})
    assert bench.stored.held == ()


async def test_what_could_not_be_given_yet_is_kept(bench: _Bench) -> None:
    """The topic is stopped, so the sync knows it no more."""
    bench.acls = AclsDone(held=(WRITE,))
    await bench.refresh()
    bench.topic(DesiredState.STOPPED, PartitionState.STOPPED)
    bench.acls = AclsDone()
    await bench.refresh()
    assert bench.stored.held == (WRITE,)


class _Giving:
    """Runs the loop that gives, with a destination that is played."""

    def __init__(self, bench: _Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench = bench
        self.given: list[Any] = []
        self.problem: Exception | None = None
        monkeypatch.setattr(acls_module, "LOOK_EVERY_S", 0.01)
        monkeypatch.setattr(acls_module, "GIVE_AGAIN_S", 0.05)
        monkeypatch.setattr(acls_module, "create", self.create)
        bench.image.apply(SkippedRecord("m", 1, held=(WRITE,)))

    async def create(self, _cluster: Any, wanted: Any, **_: Any) -> dict[Any, Any]:
        """As the destination does."""
        self.given.append(tuple(wanted))
        if self.problem is not None:
            raise self.problem
        return {}

    async def run(self, seconds: float = 0.2, *, owned: bool = True) -> Acls:
        """Let it look for a while."""
        acls = self.bench.coordinator.acls
        running = asyncio.create_task(acls.keep_giving(lambda _: owned))
        await asyncio.sleep(seconds)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return acls


async def test_a_stopped_topic_is_opened_once(bench: _Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while its partitions are about to stop, and not by a worker that does not own the mirror."""
    giving = _Giving(bench, monkeypatch)
    bench.topic(DesiredState.STOPPED, PartitionState.STOPPING)
    await giving.run()
    bench.topic(DesiredState.STOPPED, PartitionState.STOPPED)
    await giving.run(owned=False)
    assert giving.given == []
    await giving.run()
    assert giving.given == [(WRITE,)]
    assert bench.stored.held == ()


async def test_what_is_refused_is_tried_again_in_a_while(bench: _Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each failure is counted, and what is held back stays until it is given."""
    giving = _Giving(bench, monkeypatch)
    bench.topic(DesiredState.STOPPED, PartitionState.STOPPED)
    giving.problem = AuthorizationFailed("Grant ALTER on CLUSTER.")
    acls = await giving.run()
    failures = acls.errors["m"]
    assert 1 <= failures <= 5
    assert bench.stored.held == (WRITE,)
    giving.problem = ValueError("a mistake of ours")
    await giving.run()
    assert acls.errors["m"] > failures
    giving.problem = None
    await giving.run()
    assert bench.stored.held == ()


async def test_a_mirror_whose_mode_is_off_opens_nothing(bench: _Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where something was held back before it was set."""
    giving = _Giving(bench, monkeypatch)
    bench.image.apply(MirrorRecord("m", {**MIRROR.configs, "mirror.acls.sync.mode": "off"}, "S"))
    bench.topic(DesiredState.STOPPED, PartitionState.STOPPED)
    await giving.run()
    assert giving.given == []


@pytest.mark.parametrize(
    ("sasl", "mechanism", "name", "principal"),
    [
        (True, "SCRAM-SHA-256", "alice", "User:alice"),
        (True, "PLAIN", "bob", "User:bob"),
        (True, "OAUTHBEARER", None, ""),
        (False, "PLAIN", "bob", ""),
    ],
)
def test_the_own_principal_is_known_where_a_name_is_given(
    sasl: bool,  # noqa: FBT001  # one case of a table
    mechanism: str,
    name: str | None,
    principal: str,
) -> None:
    """A certificate's or a token's is made by the brokers."""
    security = SimpleNamespace(sasl=sasl, sasl_mechanism=mechanism, sasl_username=name)
    assert own_principal(SimpleNamespace(security=security)) == principal  # type: ignore[arg-type]


async def test_what_was_stored_last_counts_though_it_is_not_followed_yet(bench: _Bench) -> None:
    """Else what is held back could be overwritten by what was there before."""
    bench.acls = AclsDone(held=(WRITE,))
    await bench.refresh()
    bench.image.apply(SkippedRecord("m", 1))
    stored = bench.coordinator.acls.stored("m")
    assert stored is not None
    assert stored.held == (WRITE,)
    bench.image.apply(SkippedRecord("m", stored.at_ms + 1))
    assert bench.coordinator.acls.stored("m") == SkippedRecord("m", stored.at_ms + 1)


@pytest.mark.parametrize("owned", [True, False])
async def test_nothing_is_changed_by_a_worker_that_has_been_replaced(
    bench: _Bench, monkeypatch: pytest.MonkeyPatch, *, owned: bool
) -> None:
    """It froze in the middle of a refresh: the topic may have been stopped meanwhile, and be written to."""
    grown: list[Any] = []
    still: list[bool] = []

    async def both(cluster: Any, _names: Any) -> Any:
        count = 1 if cluster is bench.cluster else 2
        return {"t": TopicInfo("t", NO_TOPIC_ID, 0, internal=False, partitions=dict.fromkeys(range(count)))}, {}  # type: ignore[arg-type]  # only counted

    async def grow(_cluster: Any, one: Any) -> Any:
        grown.append(one)
        raise Unreachable("enough for this test")

    async def configs(*_: Any, still: Any) -> Any:
        seen(still)
        return (), 0

    async def groups(*given: Any) -> Any:
        seen(given[-1])
        return SimpleNamespace(skipped=(), errors=0)

    def seen(asked: Any) -> None:
        still.append(asked("t"))

    monkeypatch.setattr(module, "read_topics", both)
    monkeypatch.setattr(module.refresh, "grow", grow)
    monkeypatch.setattr(module.refresh, "sync_configs", configs)
    monkeypatch.setattr(module.groups, "sync", groups)
    monkeypatch.setattr(module.share_groups, "sync", groups)
    config = MirrorConfig.from_properties({"bootstrap.servers": "a:1"}, "test")
    await bench.coordinator.run(MIRROR, config, SimpleNamespace(), lambda: owned)  # type: ignore[arg-type]
    assert (len(grown), still) == (int(owned), [owned] * 3)
