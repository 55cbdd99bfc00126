"""Keys and topic ids of the records."""

from uuid import UUID, uuid4

import pytest

from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import (
    NO_TOPIC_ID,
    RECORD_TYPES,
    PartitionRecord,
    ShardRecord,
    TopicRecord,
    parse_topic_id,
    topic_id_text,
)


def test_keys_begin_with_the_type() -> None:
    """A key is the type's name and then what identifies the record, nothing else of it."""
    assert ShardRecord(3, "w").key == ("shard", 3)
    assert PartitionRecord("m", "t", 3, PartitionState.PAUSED, error="e").key == ("partition", "m", "t", 3)
    assert TopicRecord("m", "t", DesiredState.PAUSED, NO_TOPIC_ID, NO_TOPIC_ID, 1).key == ("topic", "m", "t")


def test_types_have_names_of_their_own() -> None:
    """No two record types share a name, or their keys would collide."""
    assert len({record_type.TYPE for record_type in RECORD_TYPES}) == len(RECORD_TYPES)


def test_topic_ids_look_as_kafka_prints_them() -> None:
    """16 bytes as 22 characters of base64url, read back the same."""
    known = UUID(int=0x0123456789ABCDEF_FEDCBA9876543210)
    assert topic_id_text(known) == "ASNFZ4mrze_-3LqYdlQyEA"
    assert topic_id_text(NO_TOPIC_ID) == "A" * 22
    for topic_id in (known, NO_TOPIC_ID, *(uuid4() for _ in range(50))):
        assert parse_topic_id(topic_id_text(topic_id)) == topic_id


@pytest.mark.parametrize("text", ["", "A", "A" * 21, "A" * 23, "!" * 22, str(UUID(int=7)), "ü" * 22])
def test_what_is_no_topic_id_is_refused(text: str) -> None:
    """Anything but 22 characters of base64url is refused by name."""
    with pytest.raises(ValueError, match="not a topic id"):
        parse_topic_id(text)
