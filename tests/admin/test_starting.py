"""What a start is asked for, and what it writes down beside the topics; the flow itself runs against real clusters."""

import uuid

import pytest

from twinlog.admin import starting
from twinlog.admin.starting import StartRequest, identified, portions
from twinlog.control.commands import Handled, Started
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState
from twinlog.control.records import NO_TOPIC_ID, MirrorRecord, TopicRecord
from twinlog.errors import BadInput, InvalidRequest
from twinlog.wire.cluster import PartitionInfo, TopicInfo

REPLY = Started("m", (), (), (), (), (), {})
TOPIC = TopicRecord("m", "t", DesiredState.MIRRORING, NO_TOPIC_ID, NO_TOPIC_ID, 1)


def test_a_name_means_exactly_that_topic() -> None:
    """Dots in a name are no wildcards; a regex matches whole names."""
    request = StartRequest(mirror="m", include=("a.b", "x.*"))
    assert request.named == {"a.b"}
    assert request.chosen(["a.b", "axb", "x", "xyz", "ax"]) == ["a.b", "x", "xyz"]


def test_what_cannot_be_meant_is_refused_at_once() -> None:
    """No topics, a broken pattern, an id for a topic that is not named."""
    with pytest.raises(InvalidRequest, match="No topics"):
        StartRequest(mirror="m", include=())
    with pytest.raises(BadInput, match="not valid"):
        StartRequest(mirror="m", include=("a(",))
    with pytest.raises(BadInput, match="not valid"):
        StartRequest(mirror="m", include=("a",), exclude=("b[",))
    with pytest.raises(InvalidRequest, match="'b', which is not among"):
        StartRequest(mirror="m", include=("a", ".*"), topic_ids={"b": uuid.uuid4()})


def test_the_source_is_identified_by_the_first_start_that_reaches_it() -> None:
    """A mirror created without contact gets its source's id with the first start."""
    stored = MirrorRecord("m", {"bootstrap.servers": "a:1"}, "")
    image = Image([stored])
    known = MirrorRecord("m", stored.configs, "S")
    assert identified(Handled((TOPIC,), REPLY), image, "m", "S").records == (known, TOPIC)
    changed = MirrorRecord("m", {"bootstrap.servers": "b:1"}, "")
    written = identified(Handled((changed, TOPIC), REPLY), image, "m", "S")
    assert written.records == (MirrorRecord("m", changed.configs, "S"), TOPIC)
    assert identified(Handled((TOPIC,), REPLY), image, "m", "").records == (TOPIC,)
    assert identified(Handled((TOPIC,), REPLY), Image([known]), "m", "X").records == (TOPIC,)


def test_topics_are_made_together_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many by one request, in order and each once; one of very many partitions goes alone."""
    monkeypatch.setattr(starting, "CREATED_TOGETHER", 3)
    monkeypatch.setattr(starting, "PARTITIONS_TOGETHER", 10)
    partition = PartitionInfo(1, 0, (1,), (1,), 0)
    counts = [1, 1, 1, 1, 8, 2, 50, 4, 6, 1]
    topics = [
        TopicInfo(f"t{number}", uuid.uuid4(), 0, internal=False, partitions=dict.fromkeys(range(count), partition))
        for number, count in enumerate(counts)
    ]
    assert [[len(topic.partitions) for topic in portion] for portion in portions(topics)] == [
        [1, 1, 1],
        [1, 8],
        [2],
        [50],
        [4, 6],
        [1],
    ]
    assert [topic for portion in portions(topics) for topic in portion] == topics
    assert list(portions([])) == []
