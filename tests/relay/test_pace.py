"""How long a broker may wait, and how soon it is asked again."""

from twinlog.relay.pace import JOINING_S, JOINING_WAIT_MS, LONGEST_SHORT_WAIT_MS, SHORT_WAIT_MS, Pace


def _quiet(pace: Pace, wait_ms: int, *, took_s: float | None = None, told: bool = False) -> bool:
    took_s = wait_ms / 1000 if took_s is None else took_s
    return pace.answered(records=False, told=told, took_s=took_s, wait_ms=wait_ms)


def test_whole_wait_when_everyone_is_asked_for() -> None:
    """Nothing can come that is not in the request."""
    assert Pace(500).wait_ms(0.0, everyone=True) == 500


def test_short_wait_while_someone_is_left_out() -> None:
    """Doubled while nothing comes, up to a bound, and short again once something has come."""
    pace = Pace(500)
    waits = []
    for _ in range(5):
        waits.append(pace.wait_ms(0.0, everyone=False))
        _quiet(pace, waits[-1])
    assert waits == [SHORT_WAIT_MS, 10, 20, LONGEST_SHORT_WAIT_MS, LONGEST_SHORT_WAIT_MS]
    pace.answered(records=True, told=True, took_s=0.001, wait_ms=40)
    assert pace.wait_ms(0.0, everyone=False) == SHORT_WAIT_MS


def test_no_wait_is_longer_than_configured() -> None:
    """`mirror.fetch.wait.max.ms` bounds all of them."""
    pace = Pace(2)
    pace.joined(0.0)
    assert (pace.wait_ms(0.0, everyone=False), pace.wait_ms(0.0, everyone=True)) == (2, 2)


def test_short_wait_after_a_partition_has_joined() -> None:
    """Others join with it, and must not wait for the request under way."""
    pace = Pace(500)
    pace.joined(10.0)
    assert pace.wait_ms(10.1, everyone=True) == JOINING_WAIT_MS
    assert pace.wait_ms(10.0 + JOINING_S, everyone=True) == 500


def test_early_answers_that_say_nothing_are_asked_for_more_slowly() -> None:
    """The first is taken for a sign that something is left unsaid; after that there are pauses, up to a bound."""
    pace = Pace(500)
    assert _quiet(pace, 500, took_s=0.001)
    assert pace.pause_s == 0.0
    pauses = []
    for _ in range(5):
        assert not _quiet(pace, 500, took_s=0.001)
        pauses.append(pace.pause_s)
    assert pauses == [0.01, 0.02, 0.04, 0.04, 0.04]
    assert not _quiet(pace, 500)
    assert pace.pause_s == 0.0


def test_early_answer_that_names_a_partition_leaves_nothing_unsaid() -> None:
    """An error is something to tell."""
    assert not _quiet(Pace(500), 500, took_s=0.001, told=True)
