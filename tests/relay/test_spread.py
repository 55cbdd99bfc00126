"""How streams are spread over the lanes of a broker."""

from twinlog.relay.spread import Spread


def test_streams_take_turns() -> None:
    """However few they are, no lane has two more than another."""
    spread = Spread(2)
    assert [spread.take(1) for _ in range(5)] == [0, 1, 0, 1, 0]


def test_each_broker_counts_for_itself() -> None:
    """Else partitions led in turn by two brokers would all share a lane."""
    spread = Spread(2)
    assert [spread.take(node) for node in (1, 2, 1, 2)] == [0, 0, 1, 1]


def test_a_lane_given_back_is_the_next_to_be_taken() -> None:
    """A stream that ends leaves room."""
    spread = Spread(3)
    taken = [spread.take(1) for _ in range(3)]
    spread.give_back(1, taken[1])
    assert spread.take(1) == taken[1]


def test_a_few_share_a_lane_before_another_is_used() -> None:
    """One request carries them all; beyond that lanes fill evenly."""
    spread = Spread(2, together=3)
    taken = [spread.take(1) for _ in range(8)]
    assert taken[:3] == [0, 0, 0]
    assert taken[3:6] == [1, 1, 1]
    assert sorted(taken[6:]) == [0, 1]
    spread.give_back(1, 0)
    spread.give_back(1, 0)
    assert spread.take(1) == 0
