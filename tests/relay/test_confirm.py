"""What each answer of the destination means for progress."""

from typing import Any

import pytest

from twinlog.errors import GiveWay, PartitionFailed, TakeOverAnew
from twinlog.relay.confirm import confirm
from twinlog.relay.progress import Accepted, Displaced, LeaseLost, Plan, Refused, Unknown


def _plan(made: Any) -> Plan:
    return Plan((), made.progress(110))


def test_accepted_moves_progress(made: Any) -> None:
    """The plan's own end becomes where the partition stands."""
    assert confirm(made.progress(), _plan(made), Accepted()).position == 110


def test_displaced_fails_with_both_offsets(made: Any) -> None:
    """A foreign writer is named by where it pushed us; nothing is retried."""
    with pytest.raises(PartitionFailed, match=r"100.*103") as failed:
        confirm(made.progress(), _plan(made), Displaced(expected=100, found=103))
    assert not failed.value.retriable


def test_lost_lease_gives_way(made: Any) -> None:
    """Without the lease nothing is judged and nothing more is written."""
    with pytest.raises(GiveWay):
        confirm(made.progress(), _plan(made), LeaseLost(100))


def test_unknown_outcome_reads_the_log_after_settling(made: Any) -> None:
    """What has no answer may still arrive."""
    with pytest.raises(TakeOverAnew) as anew:
        confirm(made.progress(), _plan(made), Unknown(100, "connection lost"))
    assert anew.value.settle


@pytest.mark.parametrize(("code", "settle"), [(19, False), (45, True), (47, True), (6, True)])
def test_refusals_that_hint_at_another_writer_settle(made: Any, code: int, settle: bool) -> None:  # noqa: FBT001
    """Too few replicas is harmless; a sequence or epoch out of order means that somebody else wrote."""
    with pytest.raises(TakeOverAnew) as anew:
        confirm(made.progress(), _plan(made), Refused(code, 100))
    assert anew.value.settle is settle


def test_too_large_batch_is_retried_by_itself_and_names_the_size(made: Any) -> None:
    """Raising the destination's limit is enough."""
    with pytest.raises(PartitionFailed, match="2000000 bytes") as failed:
        confirm(made.progress(), _plan(made), Refused(10, 100, 2_000_000, "max is 1048588"))
    assert failed.value.retriable


@pytest.mark.parametrize(("code", "right"), [(29, "WRITE on topic orders"), (31, "CLUSTER_ACTION")])
def test_missing_right_is_named(made: Any, code: int, right: str) -> None:
    """Which right, on what."""
    with pytest.raises(PartitionFailed, match=right) as failed:
        confirm(made.progress(), _plan(made), Refused(code, 100))
    assert failed.value.retriable


@pytest.mark.parametrize("code", [32, 48, 87])
def test_our_own_mistakes_are_not_retried(made: Any, code: int) -> None:
    """Sending the same again cannot help."""
    with pytest.raises(PartitionFailed) as failed:
        confirm(made.progress(), _plan(made), Refused(code, 100))
    assert not failed.value.retriable
