"""Whether workers are alive, and which partitions should have fresh figures."""

from tests.admin.rows import row

from twinlog.admin.live import STALE_MS, live_workers, moving
from twinlog.control.image import Image
from twinlog.control.lifecycle import PartitionState
from twinlog.control.records import WorkerRecord


def test_a_worker_lives_while_its_last_sign_is_fresh() -> None:
    """A clock that runs ahead counts as fresh."""
    beats = {"ahead": STALE_MS + 9_000, "fresh": 1, "gone": 0}
    image = Image(WorkerRecord(name, "host", 1, 0, beat) for name, beat in beats.items())
    assert live_workers(image, STALE_MS) == ("ahead", "fresh")
    assert live_workers(Image(), 0) == ()


def test_partitions_at_rest_need_no_fresh_figures() -> None:
    """Whatever is under way should be published; what is paused, stopped or failed is not."""
    rows = [row(state=state) for state in PartitionState]
    moved = {described.state for described in moving(rows)}
    assert moved == set(PartitionState) - {PartitionState.PAUSED, PartitionState.STOPPED, PartitionState.FAILED}
