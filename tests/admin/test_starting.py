"""What a start is asked for, and what it writes down beside the topics; the flow itself runs against real clusters."""

import uuid

import pytest

from twinlog.admin.sources import identified
from twinlog.admin.starting import StartRequest
from twinlog.control.commands import Handled, Started
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState
from twinlog.control.records import NO_TOPIC_ID, MirrorRecord, TopicRecord
from twinlog.errors import BadInput, InvalidRequest

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
