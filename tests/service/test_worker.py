"""What a worker promises about its end."""

from twinlog.relay.partition import REST_WITHIN_S
from twinlog.service import worker
from twinlog.service.keeper import FAREWELL_WITHIN_S
from twinlog.service.membership import LEAVE_WITHIN_S
from twinlog.service.shards import RELEASE_WITHIN_S, SAID_WITHIN_S


def test_all_steps_of_an_end_in_order_fit_into_10_s() -> None:
    """Each may use its bound up without the next being cut off, and what hangs is cut off in time."""
    steps_s = RELEASE_WITHIN_S + SAID_WITHIN_S + LEAVE_WITHIN_S + FAREWELL_WITHIN_S
    assert steps_s <= worker.END_WITHIN_S
    assert worker.END_WITHIN_S + worker.CANCEL_WITHIN_S < 10.0


def test_a_partition_may_wait_for_its_high_watermark_within_the_release() -> None:
    """Else one that is about to come to rest would be cut off, and its successor had to settle."""
    assert REST_WITHIN_S <= RELEASE_WITHIN_S - 1.0
