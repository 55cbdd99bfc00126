"""When the brokers are taken to be warm."""

from bench.stage import _settled


def test_warm_when_the_last_turns_gain_nothing() -> None:
    """Not before there is something to compare with, and not while turns still get shorter."""
    assert not _settled([])
    assert not _settled([5.0, 5.0, 5.0])
    assert not _settled([5.0, 4.0, 3.0, 2.5, 2.2, 2.0])
    assert _settled([5.0, 4.0, 2.0, 2.0, 1.95, 2.1])
