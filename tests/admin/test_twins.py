"""What a start says of destination topics that are there already."""

from twinlog.admin.twins import SHOWN, unread_state
from twinlog.control.image import Image


def test_a_state_that_cannot_be_read_is_told_with_the_topics_and_the_right() -> None:
    """Only where it makes a difference: some topics are there already."""
    (note,) = unread_state("no right", ["a", "b"])
    assert "both sides of a, b are the same" in note
    assert "Grant READ on topic __mirror_state at the source" in note
    assert note.endswith("(no right)")
    assert unread_state("no right", []) == []
    assert unread_state(Image(), ["a"]) == []
    (note,) = unread_state("no right", [f"t{n}" for n in range(SHOWN + 5)])
    assert f"t{SHOWN}" not in note
