"""What a request has to say, and what a session remembers."""

from uuid import UUID

from twinlog.names import TopicPartition
from twinlog.relay.fetch_session import LAST_EPOCH, RENEW_AFTER_S, Ask, FetchPlan, FetchSession, alone

A, B, C = (TopicPartition("orders", n) for n in range(3))


def _ask(position: int = 0, *, owner: int = 1, topic_id: int = 7, epoch: int = 4) -> Ask:
    return Ask(position, epoch, 3, UUID(int=topic_id), owner)


def _opened(wanted: dict[TopicPartition, Ask], *, now: float = 0.0) -> FetchSession:
    session = FetchSession()
    plan = session.plan(wanted, by_id=True, now=now)
    assert session.answered(plan, 99)
    return session


def _next(session: FetchSession, wanted: dict[TopicPartition, Ask], *, now: float = 1.0) -> FetchPlan:
    return session.plan(wanted, by_id=True, now=now)


def test_first_request_asks_for_everything_and_for_a_session() -> None:
    """Epoch 0 without an id is how a session begins."""
    plan = FetchSession().plan({A: _ask(), B: _ask()}, by_id=True, now=0.0)
    assert plan == FetchPlan(0, 0, {A: _ask(), B: _ask()}, {}, full=True)
    assert not plan.alone


def test_unchanged_partitions_are_not_named_again() -> None:
    """What is quiet costs nothing."""
    session = _opened({A: _ask(), B: _ask()})
    assert _next(session, {A: _ask(), B: _ask()}) == FetchPlan(99, 1, {}, {}, full=False)


def test_changed_joined_and_left_out_partitions_are_named() -> None:
    """A new position, a new leader epoch, a partition more, one less."""
    session = _opened({A: _ask(), B: _ask()})
    plan = _next(session, {A: _ask(5), C: _ask(epoch=9)})
    assert plan == FetchPlan(99, 1, {A: _ask(5), C: _ask(epoch=9)}, {B: _ask()}, full=False)
    assert session.answered(plan, 99)
    assert _next(session, {A: _ask(5), C: _ask(epoch=9)}) == FetchPlan(99, 2, {}, {}, full=False)


def test_one_left_out_while_another_joins() -> None:
    """The number alone does not tell that a partition is to be forgotten."""
    session = _opened({A: _ask()})
    assert _next(session, {B: _ask()}) == FetchPlan(99, 1, {B: _ask()}, {A: _ask()}, full=False)


def test_a_plan_that_was_not_carried_out_is_made_again() -> None:
    """Only an answer moves the session."""
    session = _opened({A: _ask()})
    assert _next(session, {A: _ask(5)}) == _next(session, {A: _ask(5)})


def test_broker_without_sessions_is_asked_for_everything() -> None:
    """Id 0 means that there is no room for one more, or that the broker knows none."""
    session = _opened({A: _ask()})
    session.lost()
    plan = _next(session, {A: _ask(), B: _ask()})
    assert session.answered(plan, 0)
    assert not session.is_open
    assert _next(session, {A: _ask(), B: _ask()}) == FetchPlan(0, 0, {A: _ask(), B: _ask()}, {}, full=True)


def test_lost_session_begins_anew_without_its_id() -> None:
    """The broker does not know the id any more."""
    session = _opened({A: _ask()})
    session.lost()
    assert _next(session, {A: _ask()}) == FetchPlan(0, 0, {A: _ask()}, {}, full=True)


def test_renewal_names_the_former_session() -> None:
    """So that the broker closes it and does not keep it beside the new one."""
    session = _opened({A: _ask()})
    session.renew()
    assert _next(session, {A: _ask()}) == FetchPlan(99, 0, {A: _ask()}, {}, full=True)


def test_session_is_renewed_by_age() -> None:
    """What a broker may leave unsaid is said some time."""
    session = _opened({A: _ask()})
    assert not _next(session, {A: _ask()}, now=RENEW_AFTER_S - 1).full
    assert _next(session, {A: _ask()}, now=RENEW_AFTER_S) == FetchPlan(99, 0, {A: _ask()}, {}, full=True)


def test_another_way_to_name_topics_begins_anew() -> None:
    """A session is bound to ids or to names."""
    session = _opened({A: _ask()})
    assert session.plan({A: _ask()}, by_id=False, now=1.0).full


def test_new_subscription_to_the_same_partition_begins_anew() -> None:
    """What the former one was told would not be said again; and a recreated topic is another one."""
    assert _next(_opened({A: _ask()}), {A: _ask(owner=2)}).full
    assert _next(_opened({A: _ask()}), {A: _ask(topic_id=8)}).full


def test_new_subscription_after_it_was_left_out_is_an_ordinary_one() -> None:
    """Once forgotten, it is told everything when it joins."""
    session = _opened({A: _ask(), B: _ask()})
    assert session.answered(_next(session, {B: _ask()}), 99)
    assert _next(session, {A: _ask(owner=2), B: _ask()}) == FetchPlan(99, 2, {A: _ask(owner=2)}, {}, full=False)


def test_answer_of_another_session_ends_this_one() -> None:
    """Nothing is known of what the broker has taken in."""
    session = _opened({A: _ask()})
    assert not session.answered(_next(session, {A: _ask()}), 12)
    assert not session.is_open


def test_epoch_starts_over_at_one() -> None:
    """0 would ask for a new session."""
    session = _opened({A: _ask()})
    session._epoch = LAST_EPOCH  # two billion requests would take too long
    assert session.answered(_next(session, {A: _ask()}), 99)
    assert _next(session, {A: _ask()}).epoch == 1


def test_request_alone_leaves_the_session_as_it_is() -> None:
    """It is for one doubtful partition, beside the session."""
    session = _opened({A: _ask(), B: _ask()})
    plan = alone({B: _ask()})
    assert (plan.session_id, plan.epoch, plan.full, plan.alone) == (0, -1, True, True)
    assert _next(session, {A: _ask(), B: _ask()}) == FetchPlan(99, 1, {}, {}, full=False)
