"""One pass over all groups of two made-up clusters: what is committed, what is listed, what counts as failed."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from twinlog.config.mirror import MirrorConfig
from twinlog.errors import AuthorizationFailed, BrokerError, RetryLater, Unreachable, UnsupportedVersion
from twinlog.names import TopicPartition
from twinlog.sync import group_pass, group_rules, groups, share_groups
from twinlog.sync.topics import Span
from twinlog.wire.ops_groups import Committed, ListedGroup

TP, TWO, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("other", 0)
LOG = Span(10, 20)


@dataclass
class Side:
    """A cluster of the test: its groups, of which the share groups' offsets are plain numbers."""

    offsets: dict[str, dict[TopicPartition, Committed]] = field(default_factory=dict)
    shares: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    refuses: dict[str, Exception | int] = field(default_factory=dict)
    away: dict[int, RetryLater] = field(default_factory=dict)
    at_once: bool = True

    def listed(self) -> dict[str, ListedGroup]:
        """As brokers list them."""
        kinds = {**dict.fromkeys(self.offsets, "classic"), **dict.fromkeys(self.shares, "share")}
        return {
            group: ListedGroup(
                group, "consumer" if kind == "classic" else "share", self.states.get(group, "Empty"), kind
            )
            for group, kind in kinds.items()
        }


async def _list(
    side: Side, *, types: Collection[str] = (), away: dict[int, RetryLater] | None = None
) -> dict[str, ListedGroup]:
    if away is not None:
        away |= side.away
    elif side.away:
        raise side.away[min(side.away)]
    return {group: one for group, one in side.listed().items() if not types or one.type in types}


async def _committed_at(side: Side, asked: Collection[ListedGroup]) -> Mapping[str, dict[TopicPartition, Committed]]:
    return {one.id: side.offsets[one.id] for one in asked} if side.at_once else {}


async def _committed(side: Side, group: str) -> dict[TopicPartition, Committed]:
    _fail(side, group)
    return side.offsets[group]


async def _commit(side: Side, group: str, offsets: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, int]:
    code = _fail(side, group)
    if not code:
        side.offsets.setdefault(group, {}).update(offsets)
    return dict.fromkeys(offsets, code)


async def _starts(side: Side, group: str) -> dict[TopicPartition, int]:
    _fail(side, group)
    if group not in side.shares:
        raise BrokerError("There is no such group.", code=69, name="GROUP_ID_NOT_FOUND")
    return side.shares[group]


async def _alter(side: Side, group: str, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    code = _fail(side, group)
    if not code:
        side.shares.setdefault(group, {}).update(starts)
    return dict.fromkeys(starts, code)


def _fail(side: Side, group: str) -> int:
    refused = side.refuses.get(group, 0)
    if isinstance(refused, Exception):
        raise refused
    return refused


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Source and destination, whose logs hold offsets 10 to 20."""

    async def logs(_sides: object) -> dict[TopicPartition, Span]:
        return dict.fromkeys((TP, TWO, OTHER), LOG)

    monkeypatch.setattr(group_rules.Sides, "logs", logs)
    monkeypatch.setattr(group_pass, "list_groups", _list)
    monkeypatch.setattr(groups, "committed_at", _committed_at)
    monkeypatch.setattr(groups, "committed_offsets", _committed)
    monkeypatch.setattr(groups, "commit_offsets", _commit)
    monkeypatch.setattr(share_groups, "share_start_offsets", _starts)
    monkeypatch.setattr(share_groups, "alter_share_start_offsets", _alter)
    return Side(), Side()


def config(**keys: str) -> MirrorConfig:
    """A mirror's config; `_` in a key stands for a dot."""
    props = {f"mirror.{key.replace('_', '.')}": value for key, value in keys.items()}
    return MirrorConfig.from_properties({"bootstrap.servers": "s:1", **props}, "test")


async def passed(sides: tuple[Any, Any], **keys: str) -> tuple[tuple[str, ...], dict[str, str], int]:
    """Sync consumer groups; what was synced, what was left alone and why, and how many failed."""
    done = await groups.sync(*sides, config(**keys), {"t"})
    return done.synced, {one.name: one.reason for one in done.skipped}, done.errors


async def shared(sides: tuple[Any, Any], **keys: str) -> tuple[tuple[str, ...], dict[str, str], int]:
    """Sync share groups."""
    done = await share_groups.sync(*sides, config(**keys), {"t"})
    return done.synced, {one.name: one.reason for one in done.skipped}, done.errors


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_pass_brings_over_what_differs_and_the_next_one_nothing(
    sides: tuple[Any, Any], *, at_once: bool
) -> None:
    """Whether brokers answer for many groups at once or not; the destination's own groups are not looked at."""
    source, destination = sides
    source.at_once = destination.at_once = at_once
    source.offsets = {"a": {TP: Committed(12, "n")}, "b": {TP: Committed(5), TWO: Committed(30)}}
    destination.offsets = {"b": {TP: Committed(11)}, "own": {TP: Committed(1)}}
    assert await passed(sides) == (("a", "b"), {}, 0)
    wanted = {"a": source.offsets["a"], "b": {TP: Committed(10), TWO: Committed(20)}, "own": {TP: Committed(1)}}
    assert destination.offsets == wanted
    assert await passed(sides) == ((), {}, 0)


async def test_one_group_that_fails_holds_up_no_other(sides: tuple[Any, Any]) -> None:
    """Rights, brokers, codes: each is counted and named, but for a group that came to life; the rest is synced."""
    source, destination = sides
    source.offsets = {group: {TP: Committed(12)} for group in ("alive", "code", "down", "fine", "named", "right")}
    destination.refuses = {
        "alive": 25,
        "code": 28,
        "down": Unreachable("The broker is away."),
        "named": 69,
        "right": AuthorizationFailed("It was refused."),
    }
    synced, reasons, errors = await passed(sides)
    assert (synced, errors, destination.offsets.keys()) == (("fine",), 4, {"fine"})
    assert reasons["alive"] == group_rules.HAS_MEMBERS
    assert reasons["down"] == "The broker is away."
    assert reasons["code"].startswith("The destination refused its offset for t-0 (")
    assert reasons["named"] == group_rules.clash("named", "consumer", "share or streams")
    assert reasons["right"] == f"It was refused. {group_rules.RIGHTS}"


async def test_live_groups_and_names_of_another_kind_are_left_alone(sides: tuple[Any, Any]) -> None:
    """A clash is counted as a failure, since an operator has to solve it; a live group is none."""
    source, destination = sides
    source.offsets = {"clash": {TP: Committed(12)}, "live": {TP: Committed(12)}}
    source.shares = {"other-clash": {TP: 12}, "live-share": {TP: 12}}
    destination.offsets = {"live": {}, "other-clash": {}}
    destination.shares = {"clash": {}, "live-share": {TP: 11}}
    destination.states = {"live": "Stable", "live-share": "Stable"}
    synced, reasons, errors = await passed(sides)
    assert (synced, errors, reasons.keys()) == ((), 1, {"clash", "live"})
    assert reasons["clash"] == group_rules.clash("clash", "consumer", "share")
    synced, reasons, errors = await shared(sides)
    assert (synced, errors, reasons.keys()) == ((), 1, {"other-clash", "live-share"})
    assert reasons["other-clash"] == group_rules.clash("other-clash", "share", "consumer")
    assert destination.shares == {"clash": {}, "live-share": {TP: 11}}


@pytest.mark.parametrize(
    ("groups_there", "include", "reason"),
    [
        ({}, ".*", "The source lists no group: it has none, or this principal may not see them"),
        ({"a": {TP: Committed(12)}}, "b", "None of the source's 1 groups passes mirror.groups.include and"),
        ({"a": {OTHER: Committed(12)}}, ".*", "None of the 1 groups that pass the filters has an offset in a topic"),
    ],
)
async def test_a_pass_that_concerns_no_group_at_all_says_why(
    sides: tuple[Any, Any], groups_there: dict[str, dict[TopicPartition, Committed]], include: str, reason: str
) -> None:
    """It may be meant so, or a mistake that nobody would notice."""
    sides[0].offsets = groups_there
    synced, reasons, errors = await passed(sides, groups_include=include)
    assert (synced, errors, list(reasons)) == ((), 0, ["*"])
    assert reasons["*"].startswith(reason)


async def test_share_groups_follow_within_the_log_and_are_not_set_twice(sides: tuple[Any, Any]) -> None:
    """Those that no filter lets in, or that have begun in no mirrored topic, are left alone; topics too."""
    source, destination = sides
    source.shares = {"a": {TP: 12, TWO: 3, OTHER: 15}, "elsewhere": {OTHER: 12}, "excluded": {TP: 12}}
    rest = {"a": "Its offsets in topics that are not mirrored here are left alone: other."}
    assert await shared(sides, groups_exclude="ex.*") == (("a",), rest, 0)
    assert destination.shares == {"a": {TP: 12, TWO: 10}}
    assert await shared(sides, groups_exclude="ex.*") == ((), rest, 0)
    source.shares.clear()
    assert await shared(sides) == ((), {}, 0)


async def test_share_groups_that_a_side_cannot_tell_or_set_are_listed_with_the_reason(sides: tuple[Any, Any]) -> None:
    """Too old is no failure; a refused right and a broker that is away are."""
    source, destination = sides
    source.shares = {group: {TP: 12} for group in ("alive", "down", "old", "right")}
    destination.refuses = {
        "alive": 68,
        "down": Unreachable("The broker is away."),
        "old": UnsupportedVersion("The broker offers no version of AlterShareGroupOffsets."),
        "right": AuthorizationFailed("It was refused."),
    }
    synced, reasons, errors = await shared(sides)
    assert (synced, errors) == ((), 2)
    assert reasons["alive"] == group_rules.HAS_MEMBERS
    assert reasons["old"].endswith("such begin: The broker offers no version of AlterShareGroupOffsets.")
    assert reasons["right"] == f"It was refused. {group_rules.RIGHTS}"
    assert await groups.behind(*sides, config(groups_include="old"), {"t"}) == {}
    source.refuses = {"old": destination.refuses.pop("old")}
    assert await groups.behind(*sides, config(groups_include="old"), {"t"}) == {}


async def test_a_topic_that_is_stopped_during_a_pass_is_touched_no_more(sides: tuple[Any, Any]) -> None:
    """Neither for consumer groups nor for share groups."""
    source, destination = sides
    source.offsets = {"a": {TP: Committed(12)}, "b": {TP: Committed(12)}}
    source.shares = {"s": {TP: 12}}
    answers = [True, False, False]
    done = await groups.sync(*sides, config(), {"t"}, lambda _topic: answers.pop(0))
    assert (done.synced, done.skipped, destination.offsets.keys()) == (("a",), (), {"a"})
    done = await share_groups.sync(*sides, config(), {"t"}, lambda _topic: answers.pop(0))
    assert (done.synced, done.skipped, destination.shares, answers) == ((), (), {}, [])


async def test_behind_names_by_topic_what_a_sync_would_move(sides: tuple[Any, Any]) -> None:
    """Nothing that no sync would touch: live ones, clashes, other topics, excluded names. It changes nothing."""
    source, destination = sides
    late = {"b": {TP: Committed(12)}, "a": {TP: Committed(12), OTHER: Committed(12)}}
    source.offsets = {**late, "excluded": late["b"], "live": late["b"], "level": late["b"], "low": {TP: Committed(1)}}
    source.shares = {"share": {TP: 15}, "clash": {TP: 15}, "level-share": {TP: 1}}
    destination.offsets = {
        "b": {TP: Committed(15)},
        "live": {},
        "level": late["b"],
        "low": {TP: Committed(10)},
        "clash": {},
    }
    destination.shares = {"level-share": {TP: 10}}
    destination.states = {"live": "Stable"}
    before = repr(destination)
    assert await groups.behind(*sides, config(groups_exclude="ex.*"), {"t"}) == {"t": ["a", "b", "share"]}
    forward = config(groups_exclude="ex.*", groups_sync_backwards="false")
    assert await groups.behind(*sides, forward, {"t"}) == {"t": ["a", "share"]}
    assert await groups.behind(*sides, config(), set()) == {}
    assert repr(destination) == before


async def test_behind_raises_where_a_single_group_cannot_be_judged(sides: tuple[Any, Any]) -> None:
    """A promotion must not go ahead on a guess."""
    source, _ = sides
    source.offsets, source.at_once = {"a": {TP: Committed(12)}}, False
    source.refuses = {"a": Unreachable("The broker is away.")}
    with pytest.raises(Unreachable, match="away"):
        await groups.behind(*sides, config(), {"t"})


async def test_a_source_broker_that_is_away_holds_up_only_its_own_groups(sides: tuple[Any, Any]) -> None:
    """It is named and counted; a promotion refuses to guess, and so does a sync without the whole destination."""
    source, destination = sides
    source.offsets, source.shares = {"a": {TP: Committed(12)}}, {"s": {TP: 12}}
    source.away = {3: Unreachable("Broker 3 is away.")}
    assert await passed(sides) == (("a",), {"of broker 3": "Broker 3 is away."}, 1)
    assert await shared(sides) == (("s",), {"of broker 3": "Broker 3 is away."}, 1)
    with pytest.raises(Unreachable, match="Broker 3"):
        await groups.behind(*sides, config(), {"t"})
    source.offsets, source.shares = {}, {}
    assert (await passed(sides))[1] == (await shared(sides))[1] == {"of broker 3": "Broker 3 is away."}
    source.away, destination.away = {}, source.away
    with pytest.raises(Unreachable, match="Broker 3"):
        await passed(sides)


async def test_groups_that_are_not_reached_in_time_wait_for_the_next_refresh() -> None:
    """A pass comes to its end also where every group costs seconds."""
    now = 0.0
    begun: list[str] = []

    async def slow(group: str) -> group_rules.Told:
        nonlocal now
        begun.append(group)
        now += 3.0
        return group_rules.Told(group, synced=True)

    done = group_rules.summed(await group_rules.each(["a", "b", "c"], slow, within_s=5.0, clock=lambda: now))
    assert (begun, done.synced, done.errors) == (["a", "b"], ("a", "b"), 1)
    assert [one.reason for one in done.skipped] == ["It was not reached within 5 s: brokers answer late."]
