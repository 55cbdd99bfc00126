"""What is said beside a copier at work."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.names import TopicPartition
from twinlog.relay.waiting import cancelled
from twinlog.reo import watching
from twinlog.reo.lines import Counts, Fact


def copier_of(*, quiet_s: float) -> Any:
    """A copier for which no round has ended for `quiet_s`; it counts how often the reason was looked for."""
    told = SimpleNamespace(looks=0, counts=Counts(), name="direct of share 3")

    async def look() -> None:
        told.looks += 1

    told.quiet_s = lambda: quiet_s
    told.look_for_holdup = look
    told.facts = lambda: [Fact(TopicPartition("t", 0), 4, 9, "")]
    return told


async def watched(copier: Any, monkeypatch: pytest.MonkeyPatch, *, tell_every_s: float) -> None:
    """Watch it for a moment that stands for minutes."""
    monkeypatch.setattr(watching, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(watching, "TELL_EVERY_S", tell_every_s)
    task = asyncio.create_task(watching.watch(copier))
    await asyncio.sleep(0.1)
    await cancelled({task})


async def test_the_reason_is_looked_for_only_while_nothing_comes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that takes its usual time is no trouble."""
    stuck, well = copier_of(quiet_s=6.0), copier_of(quiet_s=1.0)
    await watched(stuck, monkeypatch, tell_every_s=60)
    await watched(well, monkeypatch, tell_every_s=60)
    assert stuck.looks > 0
    assert well.looks == 0


async def test_progress_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """With position and lag, for the share."""
    caplog.set_level("INFO", logger="twinlog.reo")
    await watched(copier_of(quiet_s=0.0), monkeypatch, tell_every_s=0.0)
    assert "direct of share 3: 1 partitions, 5 offsets behind, most in t-0 (position 4, end 9)" in caplog.text
    caplog.clear()
    await watched(copier_of(quiet_s=0.0), monkeypatch, tell_every_s=60.0)
    assert caplog.text == ""


async def test_a_mistake_is_told_and_does_not_end_the_watching(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The reason is looked for again, and progress is told when it can be."""
    caplog.set_level("INFO", logger="twinlog.reo")
    copier = copier_of(quiet_s=6.0)
    look, mistakes = copier.look_for_holdup, [KeyError("of ours")]

    async def fail() -> None:
        if mistakes:
            raise mistakes.pop()
        await look()

    copier.look_for_holdup = fail
    await watched(copier, monkeypatch, tell_every_s=0.0)
    assert "direct of share 3: what holds it and how far it is could not be told" in caplog.text
    assert "KeyError: 'of ours'" in caplog.text
    assert copier.looks > 0
    assert "direct of share 3: 1 partitions" in caplog.text
