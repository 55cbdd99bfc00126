"""What the demo makes of a mirror's figures."""

from twinlog.cli.demo.watch import failure, lag, mirrored, reached
from twinlog.control.describe import PartitionDescription
from twinlog.control.lifecycle import PartitionState


def row(partition: int, source: int, destination: int, state: str = "MIRRORING") -> PartitionDescription:
    """A partition with these ends."""
    return PartitionDescription(
        mirror="m",
        topic="t",
        partition=partition,
        state=PartitionState[state],
        source_offset=source,
        destination_offset=destination,
        retry_attempt=0,
        error_message=f"why {partition}" if state == "FAILED" else "",
        source_high_watermark=source,
        source_log_start_offset=0,
        waiting_for_transaction=False,
        figures_age_ms=0,
        worker="w",
    )


def test_lag_is_unknown_until_every_partition_tells() -> None:
    """No partition, or one without figures, is no lag of 0."""
    assert lag(()) == -1
    assert lag((row(0, 10, 10), row(1, -1, -1, "UNKNOWN"))) == -1
    assert lag((row(0, 10, 7), row(1, 5, 5))) == 3


def test_mirrored_counts_what_is_known() -> None:
    """A partition without figures counts as nothing."""
    assert mirrored((row(0, 10, 7), row(1, -1, -1, "UNKNOWN"))) == 7


def test_failure_is_the_first_failed_partition_s() -> None:
    """One failed partition is enough, and its own sentence is told."""
    assert failure((row(0, 1, 1),)) is None
    assert failure((row(0, 1, 1), row(1, 1, 0, "FAILED"), row(2, 1, 0, "FAILED"))) == "why 1"


def test_reached_needs_every_partition() -> None:
    """An end counts as reached only in the partition that it belongs to."""
    ends = {0: 10, 1: 5}
    assert reached((row(0, 10, 10), row(1, 5, 6)), ends)
    assert not reached((row(0, 10, 10), row(1, 5, 4)), ends)
    assert not reached((row(0, 10, 10),), ends)
