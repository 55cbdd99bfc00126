"""What a worker publishes of its partitions, and how often."""

import time
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from twinlog.control.records import ProgressRecord, topics_life
from twinlog.relay.inbox import SourceFigures
from twinlog.service.figures import REPEAT_S, Figures


def _supervisor(position: int, figures: SourceFigures) -> Any:
    claim = SimpleNamespace(source_topic_id=UUID(int=6), destination_topic_id=UUID(int=5))
    relay = SimpleNamespace(position=position, confirmed=position, figures=figures, destination_start=0, claim=claim)
    return SimpleNamespace(mirror="m", topic="t", partition=0, relay=relay)


def _figures(*supervisors: Any) -> Figures:
    figures = Figures("w", 50)
    figures.shards = SimpleNamespace(supervisors=supervisors)  # type: ignore[assignment]
    return figures


def _one(figures: Figures) -> Any:
    (record,) = figures.due()
    assert isinstance(record, ProgressRecord)
    (figure,) = record.figures
    return figure


def test_changes_are_published_at_once_and_repeated_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unchanged figures come again in time for their age to stay below five seconds."""
    now = 10.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    figures = _figures(_supervisor(5, SourceFigures(0, 9, 9)))
    assert len(figures.due()) == 1
    assert figures.due() == []
    now += REPEAT_S
    assert len(figures.due()) == 1
    assert REPEAT_S < 5


def test_waiting_for_a_transaction_is_told_only_when_that_is_all_that_is_missing() -> None:
    """Behind a source with an open transaction there may still be decided data to copy."""
    assert _one(_figures(_supervisor(7, SourceFigures(0, 9, 7)))).waiting_for_transaction
    assert not _one(_figures(_supervisor(5, SourceFigures(0, 9, 7)))).waiting_for_transaction
    assert not _one(_figures(_supervisor(9, SourceFigures(0, 9, 9)))).waiting_for_transaction


def test_partition_before_its_takeover_has_no_figures() -> None:
    """Lag 0 must not be reported before anything is known."""
    assert _figures(_supervisor(-1, SourceFigures())).due() == []
    assert _figures(SimpleNamespace(mirror="m", topic="t", partition=0, relay=None)).due() == []


def test_source_that_says_nothing_makes_the_figures_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lag 0 of half a minute ago must not look like lag 0."""
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    now_ms = time.time_ns() // 1_000_000
    (record,) = _figures(_supervisor(5, SourceFigures(0, 5, 5, told_at=70.0))).due()
    assert isinstance(record, ProgressRecord)
    assert 29_000 < now_ms - record.at_ms < 31_000
    (fresh,) = _figures(_supervisor(5, SourceFigures(0, 5, 5, told_at=99.9))).due()
    assert isinstance(fresh, ProgressRecord)
    assert now_ms - fresh.at_ms < 1_000


def test_figures_say_which_topics_they_are_about() -> None:
    """A topic that is started anew under its old name has other ids, and other figures."""
    assert _one(_figures(_supervisor(5, SourceFigures(0, 5, 5)))).life == topics_life(UUID(int=6), UUID(int=5))
    assert topics_life(UUID(int=6), UUID(int=5)) != topics_life(UUID(int=6), UUID(int=4))
