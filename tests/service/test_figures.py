"""What a worker publishes of its partitions, and how often."""

import time
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from twinlog.control.records import ProgressRecord, topics_life
from twinlog.control.sharding import shard_of
from twinlog.relay.inbox import SourceFigures
from twinlog.service.figures import REPEAT_FRESH_S, REPEAT_S, Figures


def _supervisor(position: int, figures: SourceFigures, *, partition: int = 0) -> Any:
    claim = SimpleNamespace(source_topic_id=UUID(int=6), destination_topic_id=UUID(int=5))
    relay = SimpleNamespace(position=position, confirmed=position, figures=figures, destination_start=0, claim=claim)
    return SimpleNamespace(mirror="m", topic="t", partition=partition, relay=relay)


def _figures(*supervisors: Any) -> Figures:
    figures = Figures("w", 50)
    figures.shards = SimpleNamespace(supervisors=supervisors)  # type: ignore[assignment]
    return figures


def _one(figures: Figures) -> Any:
    (record,) = figures.due()
    assert isinstance(record, ProgressRecord)
    (figure,) = record.figures
    return figure


class Clock:
    """Seconds, as of both clocks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "time_ns", lambda: int(self.now * 1e9))


def test_what_has_not_changed_is_told_to_be_so_and_seldom_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unchanged figures stay young without being written: those of a source that speaks."""
    clock = Clock(monkeypatch)
    source, shard = SourceFigures(0, 9, 9, told_at=clock.now), shard_of("m", "t", 0, 50)
    figures = _figures(_supervisor(5, source))
    assert len(figures.due()) == 1
    assert figures.fresh[1] == ()
    clock.now += 1
    source.told_at = clock.now - 0.5
    assert figures.due() == []
    assert figures.fresh == (int(clock.now * 1000) - 500, (shard,))
    clock.now = source.told_at = 1000.0 + REPEAT_FRESH_S
    assert len(figures.due()) == 1


def test_figures_of_a_silent_source_are_not_told_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are said again with the time at which it last spoke, and others beside them stay fresh."""
    clock = Clock(monkeypatch)
    silent, loud = SourceFigures(0, 9, 9, told_at=clock.now), SourceFigures(0, 9, 9, told_at=clock.now)
    figures = _figures(_supervisor(5, silent), _supervisor(5, loud, partition=1))
    assert len(figures.due()) == 2
    clock.now = loud.told_at = 1000.0 + REPEAT_S
    (record,) = figures.due()
    assert isinstance(record, ProgressRecord)
    assert (record.shard, record.at_ms) == (shard_of("m", "t", 0, 50), 1_000_000)
    assert figures.fresh == (int(clock.now * 1000), (shard_of("m", "t", 1, 50),))


def test_shard_that_was_away_is_published_again() -> None:
    """Another worker may have written there meanwhile."""
    supervisor = _supervisor(5, SourceFigures(0, 9, 9))
    figures = _figures(supervisor)
    assert len(figures.due()) == 1
    figures.shards = SimpleNamespace(supervisors=())  # type: ignore[assignment]
    assert figures.due() == []
    assert figures.fresh[1] == ()
    figures.shards = SimpleNamespace(supervisors=(supervisor,))  # type: ignore[assignment]
    assert len(figures.due()) == 1


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
