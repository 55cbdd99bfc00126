"""What a topic lacks, as a promotion tells it; the two clusters are asked for real in tests/real."""

from uuid import UUID

import pytest

from twinlog.admin import promotion
from twinlog.admin.promotion import Behind, refusal
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import NO_TOPIC_ID, PartitionRecord, TopicRecord
from twinlog.names import TopicPartition
from twinlog.wire.cluster import TopicInfo

RECORD = TopicRecord("m", "t", DesiredState.MIRRORING, UUID(int=1), UUID(int=2), 3)


def test_everything_that_is_behind_is_named_once() -> None:
    """In the order of what weighs most; nothing where nothing is."""
    lacking = Behind(
        lags={TopicPartition("t", 1): 7, TopicPartition("t", 0): 3},
        undecided={TopicPartition("t", 0): 2},
        states={TopicPartition("t", 2): PartitionState.FAILED},
        configs=["retention.ms"],
        groups=["g", "h"],
    )
    told = (
        "lag: t-0 3 offset(s), t-1 7 offset(s); undecided at the source: t-0 2 offset(s); state: t-2 FAILED; "
        "configs: retention.ms; group offsets: g, h"
    )
    assert str(lacking) == told
    assert f"Topic 't' of mirror 'm' is behind its source. {told}. Let the" in str(refusal(RECORD, lacking))
    assert lacking
    assert not Behind()


def test_a_long_list_is_cut_with_what_is_left_out() -> None:
    """A message has an end."""
    told = str(Behind(groups=[f"g{number}" for number in range(promotion.SHOWN + 5)]))
    assert told.endswith(f"g{promotion.SHOWN - 1} and 5 more")


def test_a_partition_counts_only_in_states_in_which_the_logs_agree() -> None:
    """One that no worker has seen yet does not, nor one that is still being aligned or has failed."""
    states = (PartitionState.MIRRORING, PartitionState.LOG_ALIGNMENT)
    image = Image([RECORD, *(PartitionRecord("m", "t", number, state) for number, state in enumerate(states))])
    assert promotion._states(image, RECORD) == {
        TopicPartition("t", 1): PartitionState.LOG_ALIGNMENT,
        TopicPartition("t", 2): PartitionState.UNKNOWN,
    }


@pytest.mark.parametrize(
    ("theirs", "ours", "words"),
    [
        (UUID(int=1), UUID(int=2), ""),
        (NO_TOPIC_ID, UUID(int=2), ""),
        (None, UUID(int=2), "does not exist at the source"),
        (UUID(int=1), None, "does not exist at the destination"),
        (UUID(int=9), UUID(int=2), "created again at the source"),
        (UUID(int=1), UUID(int=9), "created again at the destination"),
    ],
)
def test_a_topic_that_is_another_now_is_not_level(theirs: UUID | None, ours: UUID | None, words: str) -> None:
    """By its ids, where it has any."""
    sides = [None if one is None else TopicInfo("t", one, 0, internal=False) for one in (theirs, ours)]
    found = promotion._changed(RECORD, sides[0], sides[1])
    assert words in found
    assert bool(found) == bool(words)
