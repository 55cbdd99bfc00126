"""A broker that is too old or too new is named, with the request, the versions and what to do."""

from typing import Any

import pytest
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest

from twinlog.errors import UnsupportedVersion
from twinlog.wire.connection import Peer
from twinlog.wire.messages import versions
from twinlog.wire.requirements import READING, WRITING, Need, check, require

# As brokers of these releases tell them.
KAFKA_1_0 = {1: (0, 6), 2: (0, 2), 32: (0, 0)}
KAFKA_1_1 = {1: (0, 7), 2: (0, 2), 32: (0, 1)}
NEED = Need(DescribeConfigsRequest, 1, "1.1", "to see which configs a topic sets itself")


class FakeConnection:
    """The one connection of a cluster whose broker offers these versions."""

    def __init__(self, ranges: dict[int, tuple[int, int]]) -> None:
        self.peer = Peer("source", "kafka-1", 9092)
        self._ranges = ranges

    def offered(self, request: Any) -> tuple[int, int]:
        """As the connection's."""
        return self._ranges.get(request.API_KEY, (0, -1))

    async def any_connection(self) -> "FakeConnection":
        """As the cluster's."""
        return self


def broker(ranges: dict[int, tuple[int, int]]) -> Any:
    """A broker, for whoever asks for a connection or for its cluster."""
    return FakeConnection(ranges)


def test_a_broker_that_is_too_old_is_named_with_both_versions() -> None:
    """Broker, request, what it offers, what is needed and for what, and which release has that."""
    with pytest.raises(UnsupportedVersion) as refused:
        check(broker(KAFKA_1_0), NEED)
    assert str(refused.value) == (
        "source broker kafka-1:9092 is too old: it offers versions 0 to 0 of DescribeConfigs, and version 1 is needed "
        "to see which configs a topic sets itself. Use brokers of Kafka 1.1 or newer."
    )


def test_a_request_that_a_broker_does_not_have_at_all() -> None:
    """It offers no version of it."""
    with pytest.raises(UnsupportedVersion, match="offers no version of DescribeConfigs, and version 1 is needed"):
        check(broker({}), NEED)


def test_a_broker_that_is_too_new_is_said_to_be_so() -> None:
    """A request whose known versions were all dropped."""
    newest = versions(DescribeConfigsRequest)[1]
    check(broker({32: (newest, newest + 1)}), NEED)
    with pytest.raises(UnsupportedVersion, match=rf"too new: .* versions up to {newest}\. Use a newer twinlog\."):
        check(broker({32: (newest + 1, newest + 2)}), NEED)


async def test_a_source_is_asked_for_little_a_destination_for_more() -> None:
    """What a broker of 1.1 has is enough to be read, and not enough to be written."""
    await require(broker(KAFKA_1_1), READING)
    with pytest.raises(UnsupportedVersion, match="DescribeConfigs"):
        await require(broker(KAFKA_1_0), READING)
    with pytest.raises(UnsupportedVersion, match="too old"):
        await require(broker(KAFKA_1_1), WRITING)


@pytest.mark.parametrize("need", WRITING, ids=lambda need: f"{need.request.__name__}-{need.version}")
def test_each_need_is_noticed(need: Need) -> None:
    """One version less than needed is refused, that version is not; and this program can speak it."""
    lowest, highest = versions(need.request)
    assert lowest <= need.version <= highest
    key = need.request.API_KEY
    check(broker({key: (0, need.version)}), need)
    with pytest.raises(UnsupportedVersion, match=need.since):
        check(broker({key: (0, need.version - 1)}), need)


def test_whatever_a_source_needs_a_destination_needs() -> None:
    """A destination is read, too: its tail, and its configs."""
    assert set(READING) < set(WRITING)
    assert {need.request for need in READING} == {FetchRequest, ListOffsetsRequest, DescribeConfigsRequest}
