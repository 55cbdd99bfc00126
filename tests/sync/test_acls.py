"""Which ACLs a mirror brings over, which it holds back until a stop, and which it leaves alone."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.config.acls import ANYONE, LITERAL, PREFIXED, Acl
from twinlog.config.mirror import MirrorConfig
from twinlog.control.codec import decode, encode
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import NO_TOPIC_ID, PartitionRecord, Skipped, SkippedRecord, TopicRecord
from twinlog.errors import AuthorizationFailed, BadInput, UnsupportedVersion
from twinlog.sync import acls
from twinlog.sync.acl_change import Changed
from twinlog.sync.acls import (
    AclPlan,
    AclsDone,
    Giving,
    Names,
    Scope,
    closed_topics,
    due,
    give,
    plan,
    still_due,
    stopped_topics,
    without_given,
)

STATE = Acl("TOPIC", "__mirror_state", LITERAL, "User:twinlog", "*", "ALL", "ALLOW")
"""By this ACL of the destination twinlog's principal is known."""


def acl(name: str = "t", operation: str = "READ", *, prefix: bool = False, **fields: str) -> Acl:
    """An ACL that lets `User:app` do something from anywhere, of a topic unless said otherwise."""
    pattern = PREFIXED if prefix else LITERAL
    return replace(Acl("TOPIC", name, pattern, "User:app", "*", operation, "ALLOW"), **fields)


def scope(
    *mirrored: str, closed: tuple[str, ...] = (), existing: tuple[str, ...] = (), own: str = "", **configs: str
) -> Scope:
    """A mirror of some topics; `_` in a config's key stands for a dot."""
    given = {f"mirror.{key.replace('_', '.')}": value for key, value in configs.items()}
    config = MirrorConfig.from_properties({"bootstrap.servers": "a:1", **given}, "test")
    return Scope(
        config=config,
        mirrored=Names(mirrored),
        closed=Names((*mirrored, *closed)),
        existing=Names((*mirrored, *closed, *existing, "__consumer_offsets")),
        own=own,
    )


def reasons(planned: AclPlan) -> dict[str, str]:
    """Why each was left alone."""
    return {item.name: item.reason for item in planned.skipped}


# What is copied


def test_literal_and_prefixed_acls_that_cover_a_mirrored_topic_are_made() -> None:
    """Others are not even listed: they are about topics that are not mirrored."""
    theirs = [acl("orders"), acl("ord", prefix=True), acl("other"), acl("ords", prefix=True), acl("order")]
    assert plan(theirs, [], scope("orders")) == AclPlan(create=(acl("ord", prefix=True), acl("orders")))


def test_what_is_there_already_is_not_made_again() -> None:
    """So an idle refresh changes nothing; a binding for another host is another binding."""
    assert plan([acl()], [acl()], scope("t")) == AclPlan()
    assert plan([acl()], [acl(host="1.2.3.4")], scope("t")).create == (acl(),)


def test_the_filter_counts() -> None:
    """Name and principal are expressions, a `*` is anything."""
    theirs = [acl("a"), acl("b"), acl("a", principal="User:other"), acl("a", "DESCRIBE")]
    chosen = scope("a", "b", acls_include="TOPIC;a;READ;ALLOW;User:a.*,TOPIC;b")
    assert plan(theirs, [], chosen).create == (acl("a"), acl("b"))


def test_nothing_is_mirrored_so_nothing_is_copied() -> None:
    """Not even groups."""
    assert plan([acl(), acl("g", resource_type="GROUP")], [], scope()) == AclPlan()


@pytest.mark.parametrize("operation", ["READ", "WRITE"])
def test_an_acl_for_every_topic_is_copied_only_when_asked_for_by_name(operation: str) -> None:
    """It grants more than the mirror is about; the reason says which rule to add, and that rule works."""
    wide = acl("*", operation)
    planned = plan([wide], [], scope("t"))
    assert planned == AclPlan(skipped=planned.skipped)
    rule = reasons(planned)[str(wide)].split("such as ")[1].split(" to mirror")[0]
    assert rule == f"TOPIC;[*];{operation};ALLOW;User:app"
    asked = plan([wide], [], scope("t", acls_include=f"*,{rule}"))
    assert (asked.create, asked.held) == (((wide,), ()) if operation == "READ" else ((), (wide,)))


def test_a_right_on_the_cluster_is_copied_only_when_asked_for_by_its_type() -> None:
    """One of them, ALTER, lets its principal write markers, and is held back even then."""
    describe, alter = (acl("kafka-cluster", op, resource_type="CLUSTER") for op in ("DESCRIBE", "ALTER"))
    assert "CLUSTER;*;DESCRIBE" in reasons(plan([describe], [], scope("t")))[str(describe)]
    asked = plan([describe, alter], [], scope("t", acls_include="CLUSTER"))
    assert (asked.create, asked.held, asked.held_for) == ((describe,), (alter,), ("t",))


def test_groups_follow_the_filter_of_groups() -> None:
    """Prefixed ones, too, where the filter names a group below them."""
    mine, other = acl("mine", resource_type="GROUP"), acl("other", resource_type="GROUP")
    below = acl("mi", resource_type="GROUP", prefix=True)
    every = acl("*", resource_type="GROUP")
    planned = plan([mine, other, below, every], [], scope("t", groups_include="mine"))
    assert planned.create == (below, mine)
    assert list(reasons(planned)) == [str(every)]
    assert plan([every], [], scope("t", acls_include=r"GROUP;\*")).create == (every,)


def test_transactional_ids_go_with_the_right_to_write() -> None:
    """A producer that uses transactions would fail after the stop without; others' ids are no concern."""
    ids = [acl("tx", "WRITE", resource_type="TRANSACTIONAL_ID", principal=f"User:{who}") for who in ("app", "other")]
    planned = plan([acl("t", "WRITE"), *ids], [], scope("t"))
    assert (planned.create, planned.held) == ((ids[0],), (acl("t", "WRITE"),))
    assert plan(ids, [], scope("t")) == AclPlan()
    assert plan(ids, [], scope("t", acls_include="TRANSACTIONAL_ID")).create == tuple(ids)


@pytest.mark.parametrize("kind", ["DELEGATION_TOKEN", "USER"])
def test_other_resource_types_are_copied_only_when_asked_for(kind: str) -> None:
    """They have nothing to do with topics."""
    token = acl("x", "DESCRIBE", resource_type=kind)
    assert plan([token], [], scope("t")) == AclPlan()
    assert plan([token], [], scope("t", acls_include=kind)).create == (token,)


def test_what_only_a_newer_kafka_knows_is_listed() -> None:
    """It cannot be made."""
    strange = acl("t", "UNKNOWN_99")
    planned = plan([strange], [], scope("t"))
    assert (planned.create, planned.held) == ((), ())
    assert "newer" in reasons(planned)[str(strange)]


# What is held back


@pytest.mark.parametrize("operation", ["WRITE", "ALL", "DELETE", "ALTER"])
@pytest.mark.parametrize("name", ["orders", "ord"])
def test_what_lets_somebody_change_a_mirrored_topic_is_held_back(operation: str, name: str) -> None:
    """Writing, deleting records, adding partitions: by the topic's name or by a prefix."""
    opens = acl(name, operation, prefix=name == "ord")
    planned = plan([opens], [], scope("orders"))
    assert (planned.create, planned.held) == ((), (opens,))
    assert planned.held_for == (("orders",) if name == "ord" else ())
    assert "orders" in reasons(planned)[str(opens)]


@pytest.mark.parametrize("operation", ["READ", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "CREATE"])
def test_what_lets_nobody_change_a_log_is_given_at_once(operation: str) -> None:
    """Readers may test the destination before they need it."""
    assert plan([acl("t", operation)], [], scope("t")).create == (acl("t", operation),)


def test_a_denial_of_writing_is_copied_at_once() -> None:
    """It opens nothing."""
    denial = acl("t", "WRITE", permission="DENY")
    assert plan([denial], [STATE], scope("t")) == AclPlan(create=(denial,))


def test_another_mirrors_topics_are_as_closed() -> None:
    """A prefix that covers one of this mirror's, stopped by now, and one of another's stays held back."""
    wide = acl("a", "WRITE", prefix=True)
    assert plan([wide], [], scope("a1", closed=("a2",))).held == (wide,)
    assert give([wide], ["a1"], ["a1"], Names(["a2"])).create == (acl("a1", "WRITE"),)


def test_what_the_destination_lets_others_write_is_listed_and_kept() -> None:
    """Whoever made it has to decide; twinlog's own right is none of those."""
    local, own = acl("t", "WRITE", principal="User:local"), acl("t", "ALL", principal="User:twinlog")
    planned = plan([], [local, own, STATE], scope("t"))
    assert planned == AclPlan(skipped=planned.skipped)
    assert list(reasons(planned)) == [str(local)]


def test_what_is_held_back_and_there_all_the_same_is_named_once() -> None:
    """It is stored nevertheless: somebody may take it away, as the list says, and the stop gives it."""
    there = acl("t", "WRITE")
    planned = plan([there], [there], scope("t"))
    assert (planned.held, planned.delete) == ((there,), ())
    assert [item.name for item in planned.skipped] == [str(there)]
    assert "The destination has it" in planned.skipped[0].reason


def test_more_than_can_be_stored_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored has a bound; nothing is lost silently."""
    monkeypatch.setattr(acls, "MOST_HELD", len(str(acl("t", "WRITE"))) + 5)
    many = [acl("t", "WRITE"), acl("t", "WRITE", principal="User:zzz")]
    planned = plan(many, [], scope("t"))
    assert planned.held == (many[0],)
    assert "by hand" in planned.skipped[-1].reason


# twinlog's own rights


@pytest.mark.parametrize("principal", ["User:twinlog", ANYONE])
@pytest.mark.parametrize("name", ["t", "*"])
def test_a_denial_that_twinlog_would_feel_is_not_copied(principal: str, name: str) -> None:
    """At the source it may well be denied to write; known by its rights on the state, or by how it logs in."""
    denial = acl(name, "WRITE", permission="DENY", principal=principal)
    assert plan([denial], [STATE], scope("t")).create == ()
    assert plan([denial], [], scope("t", own="User:twinlog")).create == ()


def test_where_twinlog_is_anybody_no_denial_is_copied() -> None:
    """Its rights come from an ACL for everyone, and who it is cannot be told."""
    denial = acl("t", "WRITE", permission="DENY")
    everyone = replace(STATE, principal=ANYONE)
    assert plan([denial], [everyone], scope("t")).create == ()
    assert plan([denial], [everyone], scope("t", own="User:twinlog")).create == (denial,)


@pytest.mark.parametrize(
    "inner",
    [
        acl("__", "READ", prefix=True),
        acl("twinlog", "READ", prefix=True, resource_type="GROUP"),
        acl("twinlog-", "WRITE", prefix=True, resource_type="TRANSACTIONAL_ID"),
    ],
)
def test_nobody_is_given_rights_on_what_twinlog_works_with(inner: Acl) -> None:
    """The source may be a destination of other mirrors."""
    planned = plan([inner, acl("__x", "WRITE")], [], scope("__x", topics_exclude=""))
    assert planned.create == ()
    assert "its own state" in reasons(planned)[str(inner)]


# Deleting


def test_only_the_exact_mode_deletes() -> None:
    """And it makes what is missing as the others do."""
    local = acl("t", "DESCRIBE")
    assert plan([acl()], [local], scope("t")) == AclPlan(create=(acl(),))
    assert plan([acl()], [local], scope("t", acls_sync_mode="exact")) == AclPlan(create=(acl(),), delete=(local,))


def test_the_exact_mode_deletes_what_is_about_mirrored_topics_alone() -> None:
    """A prefix that covers any other topic of the destination, and what is about all of them, stay."""
    exact = scope("a1", "a2", existing=("ab1", "b"), acls_sync_mode="exact")
    local = [acl("a1"), acl("a", prefix=True), acl("a2", prefix=True), acl("b"), acl("*"), acl("zz", prefix=True)]
    assert plan([], local, exact).delete == (acl("a1"), acl("a2", prefix=True))


def test_the_exact_mode_leaves_groups_and_the_cluster_alone_unless_asked() -> None:
    """Another mirror, or nobody's, may be what they are about."""
    group, every = acl("g", resource_type="GROUP"), acl("*", resource_type="GROUP")
    assert plan([], [group, every], scope("t", acls_sync_mode="exact")).delete == ()
    asked = scope("t", acls_sync_mode="exact", acls_include="GROUP")
    assert plan([], [group, every], asked).delete == (group,)
    assert plan([], [every], scope("t", acls_sync_mode="exact", acls_include="GROUP;.*")).delete == (every,)


def test_the_exact_mode_never_takes_from_twinlog() -> None:
    """Nor what is about its state, whoever has it."""
    own = acl("t", "ALL", principal="User:twinlog")
    reader = replace(STATE, principal="User:operator", operation="READ")
    assert plan([], [STATE, own, reader], scope("t", "__mirror_state", acls_sync_mode="exact")).delete == ()
    assert plan([], [own], scope("t", acls_sync_mode="exact", own="User:twinlog")).delete == ()
    assert plan([], [own], scope("t", acls_sync_mode="exact")).delete == (own,)


def test_the_exact_mode_keeps_to_the_filter_and_to_what_the_source_has() -> None:
    """What is held back there is not deleted here: the source has it."""
    chosen = scope("t", acls_sync_mode="exact", acls_include="TOPIC;*;*;*;User:app")
    held, other = acl("t", "WRITE"), acl("t", principal="User:other")
    assert plan([held], [held, other], chosen).delete == ()


# A stop


def test_a_stop_gives_what_was_held_back_for_it() -> None:
    """And what is held back for other topics stays."""
    held = [acl("a", "WRITE"), acl("b", "WRITE")]
    assert give(held, (), ["a"], Names(["b"])) == Giving((acl("a", "WRITE"),), (acl("b", "WRITE"),), ())
    assert give(held, (), ["c"], Names(["a", "b"])) == Giving((), tuple(held), ())


def test_a_prefix_that_covers_a_closed_topic_is_given_for_the_stopped_one_alone() -> None:
    """Once: the next look finds nothing due; the last of them gets the prefix itself."""
    held = [acl("a", "WRITE", prefix=True)]
    first = give(held, ["a1", "a2"], ["a1"], Names(["a2"]))
    assert first == Giving((acl("a1", "WRITE"),), tuple(held), ("a2",))
    assert due(first.held, first.held_for, ["a1"]) == frozenset()
    last = give(first.held, first.held_for, ["a1", "a2"], Names())
    assert last == Giving(tuple(held), (), ())


def test_a_topic_that_another_mirror_has_closed_again_is_not_opened() -> None:
    """Stopped here, and started by another mirror before its ACLs were given: they stay held back."""
    held = [acl("a", "WRITE")]
    assert give(held, ["a"], ["a"], Names(["a"])) == Giving((), tuple(held), ("a",))


def test_rights_on_the_cluster_wait_for_the_last_topic() -> None:
    """They cannot be given for one topic alone."""
    held = [acl("kafka-cluster", "ALTER", resource_type="CLUSTER")]
    first = give(held, ["a", "b"], ["a"], Names(["b"]))
    assert first == Giving((), tuple(held), ("b",))
    assert give(first.held, first.held_for, ["a", "b"], Names()).create == tuple(held)


TOPICS = ("a", "a1", "a11", "b", "b1")
HELD = st.builds(
    acl,
    st.sampled_from((*TOPICS, "*")),
    st.sampled_from(("WRITE", "ALL")),
    prefix=st.booleans(),
    principal=st.sampled_from(("User:x", "User:y")),
)


@given(st.lists(HELD, max_size=6, unique=True), st.permutations(TOPICS), st.sets(st.sampled_from(TOPICS)))
def test_stops_in_any_order_give_exactly_what_is_open_by_then(
    theirs: list[Acl], order: list[str], mirrored: set[str]
) -> None:
    """Nothing ever opens a topic that is still closed, and in the end everybody can write as at the source."""
    rule = r"TOPIC,TOPIC;\*"
    held = plan(theirs, [], scope(*mirrored, acls_include=rule))
    assert held.create == ()
    left, left_for, there, closed = held.held, held.held_for, set[Acl](), set(mirrored)
    for topic in (name for name in order if name in mirrored):
        closed.discard(topic)
        giving = give(left, left_for, mirrored - closed, Names(closed))
        left, left_for = giving.held, giving.held_for
        there.update(giving.create)
        assert not any(one.covers("TOPIC", name) for one in there for name in closed)
        assert {who(one) for one in there if one.covers("TOPIC", topic)} == {
            who(one) for one in theirs if one.covers("TOPIC", topic)
        }
    assert (left, left_for) == ((), ())


def who(one: Acl) -> tuple[str, str]:
    """Who may do what."""
    return one.principal, one.operation


@given(st.sets(st.text("ab", min_size=1, max_size=4)), st.text("ab", min_size=1, max_size=3), st.booleans())
def test_names_are_found_as_by_looking_at_each(names: set[str], name: str, prefix: bool) -> None:  # noqa: FBT001  # drawn
    """The search in order and the ACL's own rule agree."""
    one = acl(name, prefix=prefix)
    assert list(Names(names).under(one)) == sorted(found for found in names if one.covers("TOPIC", found))


# What is stored


def image(**desired: tuple[DesiredState, PartitionState]) -> Image:
    """Topics of a mirror, of one partition each."""
    changes: list[Any] = []
    for topic, (wish, state) in desired.items():
        changes += [TopicRecord("m", topic, wish, NO_TOPIC_ID, NO_TOPIC_ID, 1), PartitionRecord("m", topic, 0, state)]
    return Image(changes)


def test_a_topic_is_closed_until_its_partitions_are_stopped() -> None:
    """Unless no worker lives, that could write to it."""
    state = image(
        going=(DesiredState.MIRRORING, PartitionState.MIRRORING),
        paused=(DesiredState.PAUSED, PartitionState.PAUSED),
        ending=(DesiredState.STOPPED, PartitionState.STOPPING),
        over=(DesiredState.STOPPED, PartitionState.STOPPED),
    )
    assert stopped_topics(state, "m") == {"over"}
    assert stopped_topics(state, "m", without_workers=True) == {"over", "ending"}
    closed = closed_topics(state)
    assert {name for name in ("going", "paused", "ending", "over") if name in closed} == {"going", "paused", "ending"}
    assert len(closed_topics(state, without_workers=True)) == 2


def test_what_is_yet_to_be_given_survives_the_next_refresh() -> None:
    """Its topic is stopped, so the plan knows it no more."""
    held = (acl("a", "WRITE"), acl("b", "WRITE"), acl("x", "WRITE", prefix=True))
    assert still_due(held, ("x1", "x2"), ["a", "x1"]) == Giving((), (held[0], held[2]), ("x1",))


def test_a_record_forgets_what_was_given() -> None:
    """With its line in the list; what came meanwhile stays."""
    one, new = acl("a", "WRITE"), acl("b", "WRITE")
    lines = (Skipped("acl", str(one), "held"), Skipped("group", str(one), "live"), Skipped("acl", str(new), "held"))
    before = SkippedRecord("m", 1, lines[:2], 0, (one,), ("a",))
    now = SkippedRecord("m", 2, lines, 0, (one, new), ("a", "b"))
    after = without_given(now, before, Giving((one,), (), ()))
    assert after == SkippedRecord("m", 2, lines[1:], 0, (new,), ("b",))


def test_what_is_held_back_is_stored_and_older_records_hold_nothing() -> None:
    """As bytes and back."""
    record = SkippedRecord("m", 1, held=(acl("a", "WRITE", prefix=True),), held_for=("a1",))
    assert decode(*encode(record)) == record
    assert decode(b'["skipped","m"]', b'{"at_ms":1,"beyond":0,"items":[],"version":0}') == SkippedRecord("m", 1)


# With the clusters


class _Sides:
    """What reading the ACLs of the source and of the destination comes to."""

    def __init__(self, source: Any, destination: Any) -> None:
        self.told = {"source": source, "destination": destination}
        self.asked: list[str] = []

    async def describe(self, side: Any) -> Any:
        """An answer, or an error."""
        self.asked.append(side)
        if isinstance(self.told[side], Exception):
            raise self.told[side]
        return self.told[side]


async def synced(monkeypatch: pytest.MonkeyPatch, sides: _Sides, about: Scope) -> AclsDone:
    """One pass over these sides, in which nothing can be changed."""
    monkeypatch.setattr(acls, "describe_acls", sides.describe)
    clusters: tuple[Any, Any] = ("source", "destination")
    return await acls.sync(*clusters, about)


MISSING = AuthorizationFailed("Grant DESCRIBE on CLUSTER.")
NONE: frozenset[Acl] = frozenset()


@pytest.mark.parametrize(
    ("source", "destination", "side"),
    [(None, None, ""), (None, NONE, "source"), (NONE, None, "destination"), (None, MISSING, "source")],
)
async def test_a_side_without_an_authorizer_is_listed_where_the_other_has_one(
    monkeypatch: pytest.MonkeyPatch, source: Any, destination: Any, side: str
) -> None:
    """It is no error; and no right is missing where there is nothing that it would be for."""
    done = await synced(monkeypatch, _Sides(source, destination), scope("t"))
    assert (done.authorizers, done.errors) == (False, 0)
    assert [item.reason.split()[1] for item in done.skipped] == ([side] if side else [])


@pytest.mark.parametrize(("source", "destination"), [(MISSING, NONE), (NONE, MISSING)])
async def test_a_missing_right_is_raised_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, source: Any, destination: Any
) -> None:
    """Both rights are named, and how to do without."""
    with pytest.raises(AuthorizationFailed, match=r"DESCRIBE on CLUSTER at the source.*sync\.mode=off"):
        await synced(monkeypatch, _Sides(source, destination), scope("t"))


async def test_brokers_too_old_to_tell_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As is what to set."""
    old = UnsupportedVersion("too old.")
    with pytest.raises(UnsupportedVersion, match=r"mirror\.acls\.sync\.mode=off"):
        await synced(monkeypatch, _Sides(old, NONE), scope("t"))


async def test_nobody_is_asked_where_nothing_is_to_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode is off, or nothing is mirrored."""
    sides = _Sides(MISSING, MISSING)
    assert await synced(monkeypatch, sides, scope("t", acls_sync_mode="off")) == AclsDone()
    assert await synced(monkeypatch, sides, scope()) == AclsDone()
    assert sides.asked == []


async def test_what_was_refused_or_taken_back_is_listed_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was taken back is not tried at the next refresh, before the topic has other ACLs."""
    one, two, three = acl("t", "READ"), acl("t", "DESCRIBE"), acl("t", "DESCRIBE_CONFIGS")

    async def change(_cluster: Any, made: Any, _deleted: Any, topics: Any) -> Changed:
        assert (set(made), topics) == ({one, two, three}, {"t"})
        return Changed({one: BadInput("bad principal")}, frozenset({two}), ("WRITE on topic t",))

    monkeypatch.setattr(acls, "change", change)
    done = await synced(monkeypatch, _Sides(frozenset({one, two, three}), NONE), scope("t"))
    assert (done.errors, done.created, done.lost) == (2, (three,), ("WRITE on topic t",))
    listed = {item.name: item.reason for item in done.skipped}
    assert listed == {str(one): "bad principal", str(two): acls.CUTS}
    again = replace(scope("t"), cutting=frozenset({str(two)}))
    assert plan([two], [], again).create == ()
    assert plan([two], [acl("t", "READ")], again).create == (two,)
    local = replace(scope("t", acls_sync_mode="exact"), cutting=frozenset({str(two)}))
    planned = plan([], [two], local)
    assert (planned.delete, reasons(planned)) == ((), {str(two): acls.CUTS})
