"""The configs of a destination topic whose first copy waits for its cleaner."""

from typing import Any, cast

import pytest

from twinlog.errors import RetryLater
from twinlog.relay import rolling
from twinlog.relay.rolling import MOST_SEGMENTS, OUR_RATIO, OURS_MS, RATIO, ROLL, Rolling, wanted_roll_ms
from twinlog.wire.ops import ConfigEntry

DEFAULTS = {ROLL: "604800000", RATIO: "0.5", "cleanup.policy": "compact", "min.compaction.lag.ms": "0"}


class FakeTopic:
    """Configs of one topic; `slow` brokers know a change only after they were asked so often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **overrides: str) -> None:
        self.overrides: dict[str, str] = dict(overrides)
        self.slow: dict[int, int] = {}
        self.changes = 0
        monkeypatch.setattr(rolling, "describe_configs", self._describe)
        monkeypatch.setattr(rolling, "alter_configs", self._alter)
        monkeypatch.setattr(rolling, "OBEYED_AFTER_S", 0)
        monkeypatch.setattr(rolling, "POLL_S", 0)
        self.configs = Rolling(cast("Any", None), "t")

    async def _describe(self, *_: Any, node: int | None, **__: Any) -> dict[str, dict[str, ConfigEntry]]:
        left = self.slow.get(node or 0, 0)
        self.slow[node or 0] = left - 1
        known = {} if left > 0 else self.overrides.copy()
        if RATIO in known:
            known[RATIO] = f"{float(known[RATIO]):.3e}"  # a broker writes it in its own way
        source = {True: "DYNAMIC_TOPIC_CONFIG", False: "DEFAULT_CONFIG"}
        values = {
            name: ConfigEntry(name, known.get(name, value), source[name in known], sensitive=False, read_only=False)
            for name, value in DEFAULTS.items()
        }
        return {"t": values}

    async def _alter(self, *_: Any, set_to: dict[str, str], delete: Any = (), **__: Any) -> None:
        self.changes += 1
        self.overrides |= set_to
        for name in delete:
            self.overrides.pop(name, None)


def test_the_time_grows_with_the_age_of_the_data() -> None:
    """So that old data rolls a bounded number of segments; young data rolls after little more than a second."""
    now_ms = 1_700_000_000_000
    assert wanted_roll_ms(now_ms - 30_000, now_ms) == 1_000 + OURS_MS
    assert wanted_roll_ms(now_ms + 30_000, now_ms) == 1_000 + OURS_MS
    for age_ms in (3_600_000, 86_400_000, 365 * 86_400_000):
        assert age_ms / wanted_roll_ms(now_ms - age_ms, now_ms) <= MOST_SEGMENTS
        assert wanted_roll_ms(now_ms - age_ms, now_ms) % 1000 == OURS_MS
    assert now_ms / wanted_roll_ms(-1, now_ms) <= MOST_SEGMENTS


@pytest.mark.parametrize("own", [{}, {ROLL: "100000"}, {RATIO: "1.000e-01"}, {ROLL: "100000", RATIO: "1.000e-01"}])
async def test_what_was_before_is_put_back(monkeypatch: pytest.MonkeyPatch, own: dict[str, str]) -> None:
    """Whether the topic set it itself or not; doing so twice does no harm."""
    topic = FakeTopic(monkeypatch, **own)
    before = await topic.configs.found()
    assert not before.ours
    await topic.configs.roll_after(5_000 + OURS_MS, [1, 2])
    await topic.configs.hasten()
    assert topic.overrides == {ROLL: "5777", RATIO: OUR_RATIO}
    assert (await topic.configs.found()).ours
    await topic.configs.restore(before.text)
    assert topic.overrides == own
    changes = topic.changes
    await topic.configs.restore(before.text)
    assert (topic.overrides, topic.changes) == (own, changes)


async def test_what_somebody_else_set_meanwhile_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only values that are known as ours are replaced."""
    topic = FakeTopic(monkeypatch)
    before = (await topic.configs.found()).text
    await topic.configs.roll_after(5_777, [1])
    topic.overrides[ROLL] = "3600000"
    await topic.configs.restore(before)
    assert topic.overrides == {ROLL: "3600000"}


async def test_a_shorter_time_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It rolls segments as well."""
    topic = FakeTopic(monkeypatch, **{ROLL: "100"})
    await topic.configs.roll_after(5_777, [1])
    assert topic.changes == 0


async def test_each_broker_has_to_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is slow is waited for, one that never does is an error."""
    topic = FakeTopic(monkeypatch)
    topic.slow = {2: 5}
    await topic.configs.roll_after(5_777, [1, 2])
    assert topic.slow[2] < 0
    topic.slow = {2: 10**9}
    monkeypatch.setattr(rolling, "EVERYWHERE_WITHIN_S", 0.05)
    with pytest.raises(RetryLater, match="broker 2 does not take"):
        await topic.configs.roll_after(2_777, [1, 2])


async def test_topics_whose_cleaner_is_bound_are_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something else deletes there, or the cleaner has to keep what is young."""
    topic = FakeTopic(monkeypatch)
    assert (await topic.configs.found()).fit
    topic.overrides = {"cleanup.policy": "compact,delete"}
    assert not (await topic.configs.found()).fit
    topic.overrides = {"min.compaction.lag.ms": "1"}
    assert not (await topic.configs.found()).fit
