"""Questions of many partitions, asked together."""

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.errors import AuthorizationFailed, RetryLater
from twinlog.service import facts as module
from twinlog.service.facts import FactFinder, Gathered


class _Asked:
    """Answers with the length of the key, but for what it was told to refuse."""

    def __init__(self) -> None:
        self.rounds: list[list[str]] = []
        self.refused: dict[str, Exception] = {}

    async def __call__(self, keys: Collection[str]) -> dict[str, int]:
        self.rounds.append(list(keys))
        await asyncio.sleep(0)
        for key in keys:
            if key in self.refused:
                raise self.refused[key]
        return {key: len(key) for key in keys}


async def test_many_at_one_moment_are_one_question() -> None:
    """Six partitions of each of a hundred topics start together."""
    asked = _Asked()
    gathered = Gathered(asked)
    topics = [f"topic-{number}" for number in range(100)]
    answers = await asyncio.gather(*(gathered.get(topic) for topic in topics * 6))
    assert answers == [len(topic) for topic in topics * 6]
    assert asked.rounds == [topics]


async def test_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of topics are asked for in portions."""
    monkeypatch.setattr(module, "MOST_A_REQUEST", 40)
    asked = _Asked()
    gathered = Gathered(asked)
    await asyncio.gather(*(gathered.get(f"topic-{number}") for number in range(100)))
    assert [len(keys) for keys in asked.rounds] == [40, 40, 20]


async def test_answers_are_kept_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changed since is noticed at the next take over."""
    asked = _Asked()
    gathered = Gathered(asked)
    await gathered.get("t")
    await gathered.get("t")
    assert len(asked.rounds) == 1
    monkeypatch.setattr(module, "REFRESH_S", -1.0)
    await gathered.get("t")
    assert len(asked.rounds) == 2


async def test_one_refusal_is_nobody_elses() -> None:
    """A right that is missing for one topic does not keep the others from being mirrored."""
    asked = _Asked()
    asked.refused = {"b": AuthorizationFailed("no")}
    gathered = Gathered(asked)
    results = await asyncio.gather(*map(gathered.get, ("a", "b", "c")), return_exceptions=True)
    assert [results[0], results[2]] == [1, 1]
    assert isinstance(results[1], AuthorizationFailed)
    asked.refused = {}
    assert await gathered.get("b") == 1


async def test_brokers_that_are_away_are_not_asked_for_each_topic() -> None:
    """All who wait hear of it, and the next who asks tries again."""
    asked = _Asked()
    asked.refused = {"a": RetryLater("away")}
    gathered = Gathered(asked)
    results = await asyncio.gather(*map(gathered.get, ("a", "b", "c")), return_exceptions=True)
    assert all(isinstance(result, RetryLater) for result in results)
    assert len(asked.rounds) == 1
    asked.refused = {}
    assert await gathered.get("a") == 1


async def test_an_answer_that_leaves_something_out_lets_nobody_wait_for_ever() -> None:
    """The others of the same moment have their answers."""

    async def partly(keys: Collection[str]) -> dict[str, int]:
        return {key: 1 for key in keys if key != "b"}

    gathered = Gathered(partly)
    results = await asyncio.wait_for(asyncio.gather(*map(gathered.get, ("a", "b")), return_exceptions=True), 1)
    assert results[0] == 1
    assert isinstance(results[1], KeyError)


class _Brokers:
    """Two brokers, of which some are dead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.brokers = {1: None, 2: None}
        self.dead: set[str] = set()
        monkeypatch.setattr(module, "describe_configs", self.describe)

    async def describe(self, _cluster: Any, _kind: str, names: Collection[str], **_more: Any) -> Any:
        """As the brokers answer, each for itself."""
        if self.dead & set(names):
            raise RetryLater("away")
        return {name: {module.EXPIRATION: SimpleNamespace(value=str(1000 * int(name)))} for name in names}


async def test_a_dead_broker_still_counts_by_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every partition taken over after its death would be sent batch by batch."""
    brokers = _Brokers(monkeypatch)
    cluster: Any = brokers
    finder = FactFinder(cluster)
    assert await finder._guard_ms([""]) == {"": 500}
    brokers.dead = {"1"}
    assert await finder._guard_ms([""]) == {"": 500}


async def test_what_a_dead_broker_never_said_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caution ends with the broker's return, not half a minute later."""
    brokers = _Brokers(monkeypatch)
    brokers.dead = {"1"}
    cluster: Any = brokers
    finder = FactFinder(cluster)
    assert await finder._guard.get("") == 0
    brokers.dead = set()
    assert await finder._guard.get("") == 500


async def test_a_right_that_is_granted_helps_at_the_next_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing right is asked for at every try, a present one is remembered for a while."""
    asked: list[bool] = []

    async def rights(_cluster: Any) -> frozenset[int]:
        asked.append(granted)
        return frozenset(module.MARKER_RIGHTS) if granted else frozenset()

    monkeypatch.setattr(module, "cluster_rights", rights)
    cluster: Any = None
    finder = FactFinder(cluster)
    granted = False
    assert not await finder._rights.get("")
    granted = True
    assert await finder._rights.get("")
    assert await finder._rights.get("")
    assert asked == [False, True]


async def test_the_smaller_limit_of_a_topic_holds_and_is_asked_for_again_once_it_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some brokers take no batch above segment.bytes; and a limit that is changed counts from the next try on."""
    limits = {"cleanup.policy": "compact", "max.message.bytes": "1048588", "segment.bytes": "100000"}

    async def describe(_cluster: Any, _kind: str, names: Collection[str], *, keys: Collection[str]) -> Any:
        return {name: {key: SimpleNamespace(value=limits[key]) for key in keys} for name in names}

    monkeypatch.setattr(module, "describe_configs", describe)
    cluster: Any = None
    finder = FactFinder(cluster)
    assert await finder._topics.get("t") == (True, 100_000)
    limits["max.message.bytes"] = "20000"
    assert await finder._topics.get("t") == (True, 100_000)
    finder.forget("t")
    assert await finder._topics.get("t") == (True, 20_000)
