"""When a worker was last heard of: for how long its lease may last, and who may be holding up the state."""

import time

import pytest

from twinlog.control.records import WorkerRecord
from twinlog.service.shards import SILENT_AFTER_S, Sightings


def _heard(at: float, *workers: str, monkeypatch: pytest.MonkeyPatch, sightings: Sightings) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: at)
    sightings.note([WorkerRecord(worker, "host", 1, 0, beat_ms=int(at)) for worker in workers])


def test_quietest_is_the_one_that_was_silent_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever died inside a transaction fell silent before those whom its transaction hides."""
    sightings = Sightings()
    _heard(100.0, "dead", monkeypatch=monkeypatch, sightings=sightings)
    _heard(101.0, "hidden", monkeypatch=monkeypatch, sightings=sightings)
    _heard(101.0 + 2 * SILENT_AFTER_S, "alive", monkeypatch=monkeypatch, sightings=sightings)
    assert sightings.quietest({"dead", "hidden", "alive"}) == "dead"
    assert sightings.quietest({"hidden", "alive"}) == "hidden"


def test_nobody_is_quiet_within_some_renewals_and_strangers_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that has just been heard of, or never was, is not fenced on suspicion."""
    sightings = Sightings()
    _heard(100.0, "alive", monkeypatch=monkeypatch, sightings=sightings)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0 + SILENT_AFTER_S / 2)
    assert sightings.quietest({"alive", "stranger"}) is None
