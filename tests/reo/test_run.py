"""Which settings a copier is made with."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from twinlog.reo.run import Step, _Makers
from twinlog.reo.settings import ReoSettings, Reset
from twinlog.reo.stage import Sides

VALUES = {
    "kafka.clusters.source.bootstrap-servers": "a:1",
    "kafka.clusters.destination.bootstrap-servers": "b:1",
    "kafka.clusters.source.topic": "t.*",
}
SETTINGS = replace(ReoSettings.read(VALUES, "the settings"), auto_reset=Reset.LATEST, start_from=Reset.LATEST)


def test_a_share_that_comes_back_copies_from_its_beginning_what_was_added_meanwhile() -> None:
    """Once it has begun here; a copier that never got so far changes nothing."""
    nothing: Any = SimpleNamespace(cluster=None, cluster_id="")
    makers = _Makers(Step.DIRECT, Sides(SETTINGS, nothing, nothing), nothing)
    first = makers.copier(2).stage
    again = makers.copier(2).stage
    assert (first.settings, again.settings) == (SETTINGS, SETTINGS)
    again.settings = again.settings.once_begun()
    back = makers.copier(2).stage
    assert (back.settings.auto_reset, back.settings.start_from) == (Reset.EARLIEST, None)
    assert makers.copier(3).stage.settings == SETTINGS
    assert (back.share, back is again) == (2, False)
