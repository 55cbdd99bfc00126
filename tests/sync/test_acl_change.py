"""Changing ACLs on a cluster that is played: what is refused, and what is taken back since it costs our own rights."""

from typing import Any

import pytest

from twinlog.config.acls import LITERAL, Acl
from twinlog.errors import BrokerError, TwinlogError
from twinlog.sync import acl_change as module
from twinlog.sync.acl_change import Changed, change, create
from twinlog.wire import codes

READ = Acl("TOPIC", "t", LITERAL, "User:app", "*", "READ", "ALLOW")
LOCAL = Acl("TOPIC", "t", LITERAL, "User:*", "*", "WRITE", "ALLOW")
ON_CLUSTER = Acl("CLUSTER", "kafka-cluster", LITERAL, "User:app", "*", "DESCRIBE", "ALLOW")
CLUSTER: Any = object()


class _Played:
    """A cluster's ACLs, and what we may do by them."""

    def __init__(self) -> None:
        self.acls: frozenset[Acl] = frozenset({LOCAL})
        self.refuses: dict[Acl, TwinlogError] = {}
        self.cutting: Acl | None = None
        self.needed: Acl | None = None
        self.calls: list[str] = []

    async def describe(self, _cluster: Any) -> frozenset[Acl]:
        """All ACLs."""
        return self.acls

    async def create(self, _cluster: Any, acls: Any, **_: Any) -> dict[Acl, TwinlogError]:
        """Make those that are not refused."""
        self.calls.append("create")
        self.acls |= frozenset(acls) - frozenset(self.refuses)
        return {acl: self.refuses[acl] for acl in acls if acl in self.refuses}

    async def delete(self, _cluster: Any, acls: Any) -> dict[Acl, TwinlogError]:
        """Delete them all."""
        self.calls.append("delete")
        self.acls -= frozenset(acls)
        return {}

    async def on_topics(self, _cluster: Any, topics: Any) -> dict[str, frozenset[str]]:
        """READ always, WRITE unless cut."""
        cut = self.cutting in self.acls or (self.needed is not None and self.needed not in self.acls)
        return {topic: frozenset({"READ"} if cut else {"READ", "WRITE"}) for topic in topics}

    async def on_cluster(self, _cluster: Any) -> frozenset[str]:
        """Everything unless cut."""
        return frozenset() if self.cutting in self.acls else frozenset({"ALTER"})


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> _Played:
    """The cluster behind the calls."""
    played = _Played()
    for name, call in {
        "describe_acls": played.describe,
        "create_acls": played.create,
        "delete_acls": played.delete,
        "topic_rights": played.on_topics,
        "cluster_rights": played.on_cluster,
    }.items():
        monkeypatch.setattr(module, name, call)
    return played


async def test_making_comes_before_deleting(played: _Played) -> None:
    """Whoever's right is replaced by another is never without."""
    assert await change(CLUSTER, [READ], [LOCAL], ["t"]) == Changed()
    assert played.acls == {READ}
    assert played.calls == ["create", "delete"]
    assert await change(CLUSTER, [], [], ["t"]) == Changed()
    assert played.calls == ["create", "delete"]


async def test_what_costs_a_right_of_our_own_is_taken_back(played: _Played) -> None:
    """All of it: which of them it was is not told."""
    played.cutting = READ
    assert await change(CLUSTER, [READ], [LOCAL], ["t"]) == Changed({}, frozenset({READ, LOCAL}), ("WRITE on topic t",))
    assert played.acls == {LOCAL}
    played.cutting, played.needed = None, LOCAL
    assert (await change(CLUSTER, [], [LOCAL], ["t"])).undone == {LOCAL}
    assert played.acls == {LOCAL}


async def test_rights_on_the_cluster_are_watched_where_an_acl_is_about_it(played: _Played) -> None:
    """They are what makes markers possible."""
    played.cutting = ON_CLUSTER
    assert (await change(CLUSTER, [ON_CLUSTER], [], [])).lost == ("ALTER on the cluster",)
    assert played.acls == {LOCAL}


async def test_what_is_refused_is_told_and_not_taken_back(played: _Played) -> None:
    """It was never made."""
    played.refuses[READ] = TwinlogError("no")
    done = await change(CLUSTER, [READ, ON_CLUSTER], [], ["t"])
    assert (list(done.refused), done.undone) == ([READ], frozenset())
    assert played.acls == {LOCAL, ON_CLUSTER}


async def test_without_an_authorizer_nothing_is_lacking(played: _Played) -> None:
    """It may have been taken away since the ACLs were held back; other refusals are told."""
    gone = BrokerError("54", code=codes.SECURITY_DISABLED, name="SECURITY_DISABLED")
    played.refuses = {READ: gone, LOCAL: TwinlogError("no")}
    assert list(await create(CLUSTER, [READ, LOCAL])) == [LOCAL]
    assert await create(CLUSTER, []) == {}
