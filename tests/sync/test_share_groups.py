"""Where a share group is to begin at the destination."""

from twinlog.names import TopicPartition
from twinlog.sync.share_groups import SharePlan, plan
from twinlog.sync.topics import Span

TP, OTHER = TopicPartition("t", 0), TopicPartition("other", 0)
LOG = Span(10, 20)


def test_a_start_is_kept_within_the_log_and_set_only_where_it_differs() -> None:
    """Below the log and beyond it are its edges; an equal start is not set again, which would forget deliveries."""
    logs = {TP: LOG}
    for start, kept in ((9, 10), (10, 10), (15, 15), (20, 20), (21, 20)):
        assert plan({TP: start}, {}, logs, {"t"}).starts == {TP: kept}
    assert plan({TP: 15}, {TP: 15}, logs, {"t"}) == SharePlan({})
    assert plan({TP: 15}, {TP: 18}, logs, {"t"}).starts == {TP: 15}


def test_topics_that_are_not_mirrored_and_logs_that_were_not_read_are_left_alone() -> None:
    """The latter are named."""
    planned = plan({TP: 15, OTHER: 3}, {}, {}, {"t"})
    assert planned == SharePlan({}, unread=(TP,))
    assert planned.left == "t-0: the log at the destination could not be read this time."


def test_a_group_that_is_ahead_stays_there_where_going_back_is_switched_off() -> None:
    """It is named; what is behind is moved on."""
    two = TopicPartition("t", 2)
    planned = plan({TP: 12, two: 12}, {TP: 15, two: 11}, {TP: LOG, two: LOG}, {"t"}, backwards=False)
    assert planned == SharePlan({two: 12}, ahead=(TP,))
    assert planned.left == "t-0: ahead at the destination, and not set back."
