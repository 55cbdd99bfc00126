"""What `relay.progress` says of sequences, epochs and producer ids."""

from typing import Any

from twinlog.relay.progress import LAST_GOOD_EPOCH, BlankStep, Plan


def test_data_moves_position_and_sequence(made: Any) -> None:
    """Data of five records takes five offsets and five sequence numbers in the same epoch."""
    after = made.progress().behind_data(5, 104, 2_000_000)
    assert (after.position, after.epoch, after.sequence, after.spent_epoch) == (105, 2, 45, 2)
    assert after.last_timestamp_ms == after.data_timestamp_ms == 2_000_000


def test_sequence_wraps_as_kafka_does(made: Any) -> None:
    """Behind sequence 2**31 - 1 comes 0."""
    after = made.progress(sequence=2**31 - 2).behind_data(3, 102, 0)
    assert after.sequence == 1


def test_marker_is_above_every_spent_epoch(made: Any) -> None:
    """What a takeover counts as spent, it skips."""
    progress = made.progress(spent_epoch=9)
    assert progress.marker_epoch() == 10
    assert progress.behind_blanks(10, 100, 0).marker_epoch() == 11


def test_data_behind_blanks_has_the_next_epoch_from_sequence_zero(made: Any) -> None:
    """Data behind a marker must fence a late marker of the same epoch."""
    behind = made.progress(first_marker=False).behind_blanks(3, 109, 5)
    assert (behind.position, behind.epoch, behind.sequence, behind.spent_epoch) == (110, 4, 0, 3)
    assert behind.last_timestamp_ms == 5


def test_epoch_never_goes_back_over_many_runs(made: Any) -> None:
    """Whatever alternation of data and blanks, each marker has an epoch above all that was sent before."""
    progress, sent = made.progress(), [2]
    for n in range(200):
        epoch = progress.marker_epoch()
        assert epoch > max(sent)
        progress = progress.behind_blanks(epoch, progress.position, 0)
        sent.append(epoch)
        if n % 3:
            assert progress.epoch > epoch
            sent.append(progress.epoch)
            progress = progress.behind_data(1, progress.position, 0)


def test_spare_producer_is_wanted_well_before_the_epochs_end(made: Any) -> None:
    """A thousand epochs before the last good one, a fresh id is asked for."""
    assert not made.progress(spent_epoch=100).wants_spare(1)
    assert made.progress(spent_epoch=100).wants_spare(LAST_GOOD_EPOCH // 2)
    assert made.progress(spent_epoch=LAST_GOOD_EPOCH - 10).wants_spare(1)
    assert not made.progress(spent_epoch=LAST_GOOD_EPOCH - 10).with_spare(8).wants_spare(1)


def test_producer_changes_only_right_behind_a_marker_run(made: Any) -> None:
    """The old id's run of markers fences all that it had sent; only then the spare is used."""
    worn = made.progress(epoch=LAST_GOOD_EPOCH, spent_epoch=LAST_GOOD_EPOCH, first_marker=False).with_spare(8)
    assert worn.behind_data(1, 100, 0).producer_id == 7
    behind = worn.behind_blanks(worn.marker_epoch(), 100, 0)
    assert (behind.producer_id, behind.epoch, behind.sequence, behind.spent_epoch) == (8, 0, 0, 0)
    assert behind.last_timestamp_ms is None
    assert behind.spare_producer_id is None


def test_epochs_of_markers_that_may_be_under_way_count_as_spent(made: Any) -> None:
    """A lost marker is never followed by one of the same epoch; what was not sent yet is not counted."""
    progress = made.progress(epoch=2, spent_epoch=2, first_marker=False)
    steps = tuple(BlankStep(first, 1, 7, epoch, probe=False) for first, epoch in ((100, 3), (102, 5), (104, 7)))
    short = progress.short_of(Plan(steps, progress), 102)
    assert short.spent_epoch == 5
    assert short.marker_epoch() == 6
    assert (short.position, short.epoch) == (progress.position, progress.epoch)
