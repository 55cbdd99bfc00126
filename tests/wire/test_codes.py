"""Error codes: their names and what the caller is told to do next."""

import pytest

from twinlog import errors
from twinlog.wire import codes


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (-1, "UNKNOWN_SERVER_ERROR"),
        (0, "NONE"),
        (6, "NOT_LEADER_OR_FOLLOWER"),
        (10, "MESSAGE_TOO_LARGE"),
        (17, "INVALID_TOPIC_EXCEPTION"),
        (39, "INVALID_REPLICA_ASSIGNMENT"),
        (45, "OUT_OF_ORDER_SEQUENCE_NUMBER"),
        (133, "SHARE_SESSION_LIMIT_REACHED"),
        (9999, "UNKNOWN_CODE_9999"),
    ],
)
def test_a_code_has_kafkas_name(code: int, name: str) -> None:
    """Names are those of Kafka's `Errors`, also where kafka-python keeps an older one."""
    assert codes.code_name(code) == name


def test_every_constant_is_named_as_kafka_names_its_code() -> None:
    """A constant of the module whose number is mistyped would get another code's name."""
    constants = {name: value for name, value in vars(codes).items() if name.isupper() and isinstance(value, int)}
    assert len(constants) > 50
    assert {name: codes.code_name(value) for name, value in constants.items()} == {name: name for name in constants}


@pytest.mark.parametrize(
    ("code", "expected"), [(0, False), (2, True), (3, True), (7, True), (14, True), (47, False), (9999, False)]
)
def test_retriable_as_in_kafka(code: int, expected: bool) -> None:  # noqa: FBT001  # a table's column
    """Codes whose exception is retriable in Kafka's clients, and no others."""
    assert codes.retriable(code) is expected


@pytest.mark.parametrize(
    ("error", "group"),
    [
        (errors.AuthorizationFailed, [29, 30, 31, 53, 65]),
        (errors.AuthenticationFailed, [33, 34, 58]),
        (errors.RefreshLeader, [3, 5, 6, 9, 13, 15, 16, 41, 56, 72, 74, 75, 100, 103]),
        (errors.UnsupportedVersion, [35]),
        (errors.GiveWay, [47, 90]),
        (errors.TakeOverAnew, [45, 46, 52, 59]),
        (errors.PartitionFailed, [10, 18, 32, 48, 87]),
        (errors.BrokerError, [-1, 1, 2, 7, 14, 19, 20, 36, 40, 51, 78, 89, 9999]),
    ],
)
def test_an_error_says_what_the_caller_does_next(error: type[Exception], group: list[int]) -> None:
    """Every code raises the class of its group, with a sentence that names what failed, code and name."""
    for code in group:
        with pytest.raises(error) as raised:
            codes.check(code, "dr: orders-3 could not be read")
        assert str(raised.value).startswith(f"dr: orders-3 could not be read ({codes.code_name(code)}, error {code}).")


def test_success_raises_nothing() -> None:
    """Code 0 is no error."""
    assert codes.check(0, "nothing") is None  # type: ignore[func-returns-value]  # that is what is tested


def test_the_brokers_own_words_are_kept() -> None:
    """A message in the response, with or without its full stop, becomes part of the sentence."""
    with pytest.raises(errors.BrokerError) as raised:
        codes.check(40, "Topic orders cannot be created", " Unknown topic config name: x. ")
    assert str(raised.value) == (
        "Topic orders cannot be created (INVALID_CONFIG, error 40): Unknown topic config name: x."
    )
    assert (raised.value.code, raised.value.name) == (40, "INVALID_CONFIG")


def test_a_missing_right_is_named() -> None:
    """An operator learns on which kind of resource a right is missing."""
    with pytest.raises(errors.AuthorizationFailed, match=r"Grant .* right on the transactional id"):
        codes.check(53, "dr: the lease could not be taken")
    with pytest.raises(errors.AuthorizationFailed, match=r"Grant this client's principal READ on TOPIC orders\."):
        codes.check(29, "dr: orders-0 could not be read", right="READ on TOPIC orders")
