"""What a copy says of itself in the log."""

from twinlog.names import TopicPartition
from twinlog.reo.lines import Counts, Fact, begins, ends, goes_on


def fact(topic: str, partition: int, position: int, end: int = -1, error: str = "") -> Fact:
    """One partition."""
    return Fact(TopicPartition(topic, partition), position, end, error)


def test_the_beginning_names_what_goes_where_from_which_positions() -> None:
    """By topic; of very many partitions the first few."""
    facts = [(fact("a", 0, 17), "a-copy"), (fact("a", 1, 0), "a-copy"), (fact("b", 0, 5), "b-copy")]
    assert begins(facts) == "a to a-copy from 0:17, 1:0; b to b-copy from 0:5 (partition:offset)"
    assert begins([(fact("a", number, 0), "a") for number in range(40)]).endswith(
        "11:0, and 28 more (partition:offset)"
    )
    assert begins([]) == ""


def test_progress_tells_the_lag_and_what_was_done_meanwhile() -> None:
    """The partition that is farthest behind by name."""
    facts = [fact("a", 0, 17, 20), fact("a", 1, 40, 100, "too large"), fact("b", 0, 9)]
    assert goes_on(facts, Counts(1_000_000, 5, 1), Counts(3_500_000, 9, 1)) == (
        "3 partitions, 63 offsets behind, most in a-1 (position 40, end 100), 1 stopped; since the last such line "
        "2.5 MB in 4 rounds, 0 interrupted; positions a 0:17, 1:40; b 0:9"
    )
    assert goes_on([fact("a", 0, 20, 20)], Counts(), Counts()).startswith("1 partitions, up to date, 0 stopped;")


def test_the_end_tells_the_positions() -> None:
    """Also where there are none."""
    assert ends([fact("a", 1, 4), fact("a", 2, 0)]) == "a 1:4, 2:0"
    assert ends([]) == "none"
