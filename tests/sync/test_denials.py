"""Which topics others are denied to write to, and that it is only done where it leaves twinlog's own right alone."""

from dataclasses import replace
from typing import Any

import pytest

from twinlog.config.acls import ANYONE, LITERAL, Acl, denial
from twinlog.config.mirror import MirrorConfig
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import NO_TOPIC_ID, MirrorRecord, PartitionRecord, TopicRecord
from twinlog.errors import BrokerError, TwinlogError, Unreachable
from twinlog.sync import acl_change
from twinlog.sync import denials as module
from twinlog.sync.acls import Names, Scope, plan
from twinlog.sync.denials import PROBE, allow, by_hand, deny, lost, open_without_acl, over, sort_out, to_deny, trouble
from twinlog.wire.ops_configs import ConfigEntry

ON, OFF = ({"bootstrap.servers": "a:1", "mirror.acls.deny.writes": value} for value in ("true", "false"))
READ = Acl("TOPIC", "t", LITERAL, "User:app", "*", "READ", "ALLOW")
OPEN = "allow.everyone.if.no.acl.found"


def image(**states: PartitionState) -> Image:
    """A mirror that denies, with topics of one partition; what is at rest or about to be is to be stopped."""
    changes: list[Any] = [MirrorRecord("m", ON, "S")]
    for topic, state in states.items():
        ends = state in {PartitionState.STOPPED, PartitionState.STOPPING}
        desired = DesiredState.STOPPED if ends else DesiredState.MIRRORING
        changes.append(TopicRecord("m", topic, desired, NO_TOPIC_ID, NO_TOPIC_ID, 1))
        changes.append(PartitionRecord("m", topic, 0, state))
    return Image(changes)


STATES = image(goes=PartitionState.MIRRORING, ends=PartitionState.STOPPING, rests=PartitionState.STOPPED)


def test_the_acl_denies_writing_to_everybody() -> None:
    """It is about one topic and one operation."""
    assert denial("t") == Acl("TOPIC", "t", LITERAL, ANYONE, "*", "WRITE", "DENY")


def test_what_is_to_be_stopped_is_not_begun_with_and_is_over_when_it_is() -> None:
    """Between, nobody else may write; without workers, nobody mirrors to it either."""
    assert to_deny(STATES, "m") == ("goes",)
    denied = ["ends", "goes", "rests", "unknown"]
    assert over(STATES, "m", denied) == {"rests", "unknown"}
    assert over(STATES, "m", denied, without_workers=True) == {"ends", "rests", "unknown"}


def test_all_is_over_where_the_mirror_is_gone_or_its_config_is_off() -> None:
    """Configs that nobody can read change nothing."""
    assert over(Image(), "m", ["goes"]) == {"goes"}
    states = image(goes=PartitionState.MIRRORING)
    states.apply(MirrorRecord("m", OFF, "S"))
    assert over(states, "m", ["goes"]) == {"goes"}
    states.apply(MirrorRecord("m", {**ON, "no.such.key": "1"}, "S"))
    assert over(states, "m", ["goes"]) == frozenset()


def test_what_is_there_is_not_made_whoever_made_it() -> None:
    """So somebody's own DENY is never taken for one of twinlog's."""
    assert sort_out(["t", "u"], [denial("t")], [], open_without=False) == (("u",), ())


def test_the_first_acl_about_a_topic_is_not_made_where_it_would_end_other_rights() -> None:
    """There, everybody may do what no ACL is about."""
    make, skipped = sort_out(["t", "u"], [READ], [], open_without=True)
    assert make == ("t",)
    assert [(item.name, OPEN in item.reason) for item in skipped] == [(str(denial("u")), True)]
    assert sort_out(["t", "u"], [READ], [], open_without=False) == (("t", "u"), ())


def test_more_than_can_be_noted_is_not_denied_but_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is noted already counts, whether it is there or not."""
    monkeypatch.setattr(module, "MOST_DENIED", 4)
    make, skipped = sort_out(["aa", "bb", "cc"], [], ["xx"], open_without=False)
    assert make == ("aa",)
    assert [item.name for item in skipped] == [str(denial("bb")), str(denial("cc"))]
    assert sort_out(["aa", "bb"], [], ["aa", "bb"], open_without=False)[0] == ("aa", "bb")


# What the sync of ACLs makes of it


def scope(*denied: str, **configs: str) -> Scope:
    """A mirror of the topics `t` and `u`; `_` in a config's key stands for a dot."""
    given = {f"mirror.{key.replace('_', '.')}": value for key, value in configs.items()}
    config = MirrorConfig.from_properties({"bootstrap.servers": "a:1", **given}, "test")
    mirrored = Names(["t", "u"])
    return Scope(config=config, mirrored=mirrored, closed=mirrored, existing=mirrored, denied=frozenset(denied))


def listed(*ours: Acl) -> list[str]:
    """What the destination has open."""
    return [item.name for item in plan([], ours, scope()).skipped]


def test_what_is_open_to_nobody_since_writing_is_denied_is_not_listed() -> None:
    """Whoever made that DENY; one that is not about every host, or another right, closes nothing."""
    write = replace(READ, operation="WRITE")
    every = replace(READ, operation="ALL")
    assert listed(write) == [str(write)]
    assert listed(write, denial("t")) == []
    assert listed(write, replace(denial("t"), host="1.2.3.4")) == [str(write)]
    assert listed(every, denial("t")) == [str(every)]


def test_a_denial_of_twinlogs_own_is_neither_deleted_nor_copied() -> None:
    """Mode exact does not miss it at the source; what another twinlog has made at the source stays there."""
    both = [denial("t"), denial("u")]
    assert plan([], both, scope("t", acls_sync_mode="exact")).delete == (denial("u"),)
    assert plan([], both, scope(acls_sync_mode="exact", acls_deny_writes="true")).delete == ()
    theirs = plan(both, [], scope(acls_sync_mode="exact"))
    assert (theirs.create, theirs.held) == ((), ())
    assert all("everybody" in item.reason for item in theirs.skipped)


# With the destination


class _Played:
    """Two brokers; the ACLs that they go by, and how each judges twinlog."""

    def __init__(self) -> None:
        self.brokers = {1: None, 2: None}
        self.acls: set[Acl] = set()
        self.bound_at: set[int | None] = set()
        self.rights = True
        self.tells = True
        self.deaf: set[int | None] = set()
        self.refuses: dict[Acl, TwinlogError] = {}
        self.configs: dict[str, str | None] = {}
        self.made: list[Acl] = []

    async def describe(self, _cluster: Any, *, node: int | None = None, **_: Any) -> frozenset[Acl]:
        """What a broker has learned."""
        return frozenset() if node in self.deaf else frozenset(self.acls)

    async def create(self, _cluster: Any, acls: Any, **_: Any) -> dict[Acl, TwinlogError]:
        """Make those that are not refused."""
        self.made += acls
        self.acls |= set(acls) - set(self.refuses)
        return {acl: self.refuses[acl] for acl in acls if acl in self.refuses}

    async def delete(self, _cluster: Any, acls: Any, **_: Any) -> dict[Acl, TwinlogError]:
        """Delete those that are not refused."""
        self.acls -= set(acls) - set(self.refuses)
        return {acl: self.refuses[acl] for acl in acls if acl in self.refuses}

    async def rights_on(
        self, _cluster: Any, topics: Any, *, node: int | None = None, **_: Any
    ) -> dict[str, frozenset[str]]:
        """READ always; WRITE where twinlog has it and is not denied it at this broker."""
        if not self.tells:
            return {}

        def may(topic: str) -> bool:
            return self.rights and not (node in self.bound_at and denial(topic) in self.acls)

        return {topic: frozenset({"READ", "WRITE"} if may(topic) else {"READ"}) for topic in topics}

    async def describe_configs(self, _cluster: Any, _kind: Any, names: Any, **_: Any) -> Any:
        """One config of a broker."""
        found = {name: self.configs[name] for name in names if name in self.configs}
        return {
            name: {OPEN: ConfigEntry(OPEN, value, "", sensitive=True, read_only=True)} for name, value in found.items()
        }


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> _Played:
    """The destination behind the calls."""
    played = _Played()
    monkeypatch.setattr(module, "SEEN_WITHIN_S", 0.0)
    monkeypatch.setattr(acl_change, "SEEN_WITHIN_S", 0.0)
    for where, name, call in (
        (module, "describe_acls", played.describe),
        (module, "delete_acls", played.delete),
        (module, "topic_rights", played.rights_on),
        (module, "describe_configs", played.describe_configs),
        (acl_change, "describe_acls", played.describe),
        (acl_change, "create_acls", played.create),
        (acl_change, "delete_acls", played.delete),
        (acl_change, "topic_rights", played.rights_on),
    ):
        monkeypatch.setattr(where, name, call)
    return played


def cluster(played: _Played) -> Any:
    """Where it is asked which brokers there are."""
    return played


async def test_a_super_user_passes_and_leaves_nothing_behind(played: _Played) -> None:
    """It was tried on a name that is no topic."""
    assert await trouble(cluster(played)) == ""
    assert (played.made, played.acls) == ([denial(PROBE)], set())


async def test_whoever_has_no_right_without_an_acl_is_no_super_user(played: _Played) -> None:
    """For that nothing need be made."""
    played.rights = False
    assert "super user" in await trouble(cluster(played))
    assert played.made == []


async def test_one_broker_that_takes_twinlog_for_somebody_else_is_enough(played: _Played) -> None:
    """Its settings are its own; the ACL is taken away again."""
    played.bound_at = {2}
    said = await trouble(cluster(played))
    assert "at broker 2" in said
    assert "super.users" in said
    assert played.acls == set()


async def test_brokers_that_do_not_tell_are_not_relied_on(played: _Played) -> None:
    """Too old, or late with the ACL, or unwilling to have it."""
    played.deaf = {2}
    assert "broker 2 has not learned" in await trouble(cluster(played))
    played.refuses = {denial(PROBE): BrokerError("No more ACLs.", code=1, name="X")}
    assert await trouble(cluster(played)) == "No more ACLs."
    played.tells = False
    assert "too old" in await trouble(cluster(played))
    assert played.acls == set()


async def test_a_lost_right_is_noticed_at_any_broker(played: _Played) -> None:
    """Somebody may have taken twinlog out of a broker's super users."""
    played.acls = {denial("t"), denial("u")}
    assert await lost(cluster(played), ["t", "u", "v"]) == ""
    played.bound_at = {2}
    assert "t and 1 more at broker 2" in await lost(cluster(played), ["t", "u", "v"])


async def test_what_costs_the_own_right_is_taken_back_at_once(played: _Played) -> None:
    """And said of each topic; what is refused is said, too."""
    assert await deny(cluster(played), ["t"]) == (frozenset(), ())
    assert played.acls == {denial("t")}
    played.refuses = {denial("u"): BrokerError("No more ACLs.", code=1, name="X")}
    without, skipped = await deny(cluster(played), ["u"])
    assert (without, [item.reason for item in skipped]) == ({"u"}, ["No more ACLs."])
    played.bound_at = {None}
    without, skipped = await deny(cluster(played), ["v"])
    assert (without, played.acls) == ({"v"}, {denial("t")})
    assert "lost WRITE on topic v" in skipped[0].reason


async def test_allowing_says_what_failed(played: _Played) -> None:
    """By topic; nothing else is deleted."""
    problem = Unreachable("nobody there")
    played.acls = {denial("t"), denial("u"), replace(denial("t"), host="1.2.3.4")}
    played.refuses = {denial("u"): problem}
    assert await allow(cluster(played), ["t", "u"], timeout_s=1.0) == {"u": problem}
    assert played.acls == {denial("u"), replace(denial("t"), host="1.2.3.4")}
    assert by_hand("u").endswith("--topic u")


async def test_that_rights_may_be_open_without_an_acl_is_seen_by_the_config_being_set(played: _Played) -> None:
    """Its value is hidden, unless a broker tells it."""
    assert not await open_without_acl(cluster(played))
    played.configs = {"1": "false"}
    assert not await open_without_acl(cluster(played))
    played.configs = {"1": "false", "2": None}
    assert await open_without_acl(cluster(played))
