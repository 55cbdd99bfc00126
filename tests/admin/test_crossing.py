"""What a start takes back that was made in the other direction at the same moment; the race itself runs for real."""

from dataclasses import replace
from typing import Any

import pytest

from twinlog.admin import crossing
from twinlog.admin.crossing import undone
from twinlog.control.commands import Started
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState
from twinlog.control.records import NO_TOPIC_ID, MirrorRecord, TopicRecord
from twinlog.errors import ConcurrentChange, RetryLater

TOPIC = TopicRecord("m", "t", DesiredState.MIRRORING, NO_TOPIC_ID, NO_TOPIC_ID, 1)


def test_an_undone_start_stops_just_its_topics() -> None:
    """Not what somebody has paused or stopped meanwhile, and the patterns stay."""
    others = [replace(TOPIC, topic="p", desired=DesiredState.PAUSED), replace(TOPIC, topic="u")]
    image = Image([MirrorRecord("m", {}, "S"), TOPIC, *others])
    assert undone(image, "m", ["t", "p", "gone"]).records == (replace(TOPIC, desired=DesiredState.STOPPED),)


class FakeCluster:
    """A cluster with an id."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id


async def undone_by(monkeypatch: pytest.MonkeyPatch, there: Any, *, withdrawn: int) -> tuple[dict[str, Any], int]:
    """Look at the source's state `there` behind a start of t, where so many commits are withdrawn; and the tries."""
    tries = 0

    async def state_of(_cluster: Any, *, timeout_s: float) -> Any:
        assert timeout_s == 1
        if isinstance(there, Exception):
            raise there
        return there

    async def change(_cluster: Any, _log: Any, _handler: Any) -> None:
        nonlocal tries
        tries += 1
        if tries <= withdrawn:
            raise ConcurrentChange("withdrawn")

    monkeypatch.setattr(crossing, "state_of", state_of)
    monkeypatch.setattr(crossing.state, "change", change)
    sides: Any = FakeCluster("S"), FakeCluster("D")
    judged = Started("m", ("t",), (), (), (), (), {})
    log: Any = None
    return await crossing.undo_crossed(sides, log, judged, within_s=1), tries


async def test_a_start_is_taken_back_however_busy_the_state_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within bounds; after these it is said that there is a loop now, and what to do."""
    there = Image([MirrorRecord("back", {}, "D"), replace(TOPIC, mirror="back")])
    failed, tries = await undone_by(monkeypatch, there, withdrawn=2)
    assert (list(failed), tries) == (["t"], 3)
    assert str(failed["t"]).startswith("Detected mirror loop for mirror: m. ")
    with pytest.raises(ConcurrentChange, match="Stop them in one direction now"):
        await undone_by(monkeypatch, there, withdrawn=100)


@pytest.mark.parametrize("there", [Image(), "No READ.", RetryLater("Later.")])
async def test_a_start_stands_where_nothing_is_known_against_it(
    monkeypatch: pytest.MonkeyPatch, there: Image | str | Exception
) -> None:
    """It is recorded already."""
    assert await undone_by(monkeypatch, there, withdrawn=0) == ({}, 0)
