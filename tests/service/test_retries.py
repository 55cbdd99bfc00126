"""When a FAILED partition is tried again, and what counts as a retry that has helped."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.config.mirror import MirrorConfig
from twinlog.control.lifecycle import PartitionState
from twinlog.control.records import NEVER_RETRY, PartitionRecord
from twinlog.service import retries
from twinlog.service.retries import helped, returns_to, wait_s

FOREVER = float("inf")


def failed(attempt: int, previous: PartitionState = PartitionState.MIRRORING) -> PartitionRecord:
    """A FAILED partition that was retried so often."""
    return PartitionRecord("m", "t", 0, PartitionState.FAILED, retry_attempt=attempt, previous_state=previous)


def config(**configs: str) -> MirrorConfig:
    """Retry settings of a mirror."""
    named = {f"mirror.failed.retry.{key.replace('_', '.')}": value for key, value in configs.items()}
    return MirrorConfig.from_properties({"bootstrap.servers": "s:9092", **named}, "test")


@pytest.mark.parametrize(("attempt", "waits_s"), [(0, 1.0), (1, 2.0), (5, 32.0), (8, 256.0), (9, 300.0)])
def test_the_wait_doubles_up_to_its_ceiling(attempt: int, waits_s: float) -> None:
    """The defaults of the KIP; with the middle of the spread."""
    assert wait_s(failed(attempt), config(), spread=lambda: 0.5) == pytest.approx(waits_s)


@pytest.mark.parametrize(("spread", "factor"), [(0.0, 0.8), (1.0, 1.2)])
def test_the_wait_is_spread(spread: float, factor: float) -> None:
    """A thousand partitions of one source that was down must not all come at once."""
    assert wait_s(failed(2), config(), spread=lambda: spread) == pytest.approx(4.0 * factor)


@pytest.mark.parametrize(
    ("attempt", "configs"),
    [(10, {}), (11, {}), (NEVER_RETRY, {}), (0, {"max_attempts": "0"}), (3, {"max_attempts": "3"})],
)
def test_only_an_operator_helps_once_all_attempts_are_used(attempt: int, configs: dict[str, str]) -> None:
    """No retry at all with 0, and none of what time cannot cure."""
    assert wait_s(failed(attempt), config(**configs)) == FOREVER


@pytest.mark.parametrize(
    ("previous", "there"),
    [
        (PartitionState.MIRRORING, PartitionState.MIRRORING),
        (PartitionState.LOG_ALIGNMENT, PartitionState.LOG_ALIGNMENT),
        (PartitionState.UNKNOWN, PartitionState.LOG_ALIGNMENT),
        (PartitionState.STOPPING, PartitionState.LOG_ALIGNMENT),
    ],
)
def test_a_retry_returns_to_where_it_failed(previous: PartitionState, there: PartitionState) -> None:
    """Or aligns the logs, where that was not a state in which it streams."""
    assert returns_to(failed(1, previous)) is there


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "HELPED_POLL_S", 0.01)
    monkeypatch.setattr(retries, "HELPED_AFTER_S", 0.05)


def relay(*, confirmed: int, stable: int) -> Any:
    """A relay that streams, and stands where it is told."""
    return SimpleNamespace(confirmed=confirmed, streaming_idle=True, figures=SimpleNamespace(last_stable_offset=stable))


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize(("confirmed", "stable"), [(6, 9), (5, 5)])
async def test_an_append_or_a_while_at_the_sources_end_has_helped(confirmed: int, stable: int) -> None:
    """A quiet topic must not use up its attempts over the years."""
    await asyncio.wait_for(helped(relay(confirmed=confirmed, stable=stable), lambda: 5), 2.0)
    assert retries.HELPED_AFTER_S < 2.0


@pytest.mark.usefixtures("_at_once")
async def test_standing_still_behind_the_source_has_not_helped() -> None:
    """A takeover alone proves nothing."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(helped(relay(confirmed=5, stable=9), lambda: 5), 0.3)
