"""Versions, flexible headers and exact decoding of Kafka's messages."""

import pytest
from kafka.protocol.admin.topics import CreateTopicsRequest
from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse
from kafka.protocol.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.metadata.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.sasl import SaslHandshakeRequest

from twinlog.wire.messages import (
    REMEMBERED_BYTES,
    Message,
    api_name,
    api_versions_decoder,
    decoder,
    is_flexible,
    metadata_decoder,
    versions,
)


def fetched(records: bytes | None) -> Message:
    """A Fetch response with two partitions that hold the same records."""
    response = FetchResponse
    parts = [
        response.FetchableTopicResponse.PartitionData(
            partition_index=number,
            error_code=0,
            high_watermark=9,
            last_stable_offset=9,
            log_start_offset=0,
            aborted_transactions=None,
            preferred_read_replica=-1,
            records=records,
        )
        for number in (0, 1)
    ]
    topic = response.FetchableTopicResponse(topic="orders", partitions=parts)
    return response(throttle_time_ms=0, error_code=0, session_id=0, responses=[topic])


@pytest.mark.parametrize("version", [4, 11, 12])
def test_fetched_records_are_views_of_the_response(version: int) -> None:
    """Plain and flexible versions: nothing of the records is copied, and they stay read-only as the response is."""
    body = memoryview(bytes(fetched(b"batch bytes").encode(version=version)))
    answer = decoder(FetchRequest, version)(body)
    records = [part.records for part in answer.responses[0].partitions]
    assert [bytes(view) for view in records] == [b"batch bytes"] * 2
    assert all(isinstance(view, memoryview) and view.obj is body.obj for view in records)


def test_no_records_stay_none() -> None:
    """Null records are not an empty view."""
    body = memoryview(bytes(fetched(None).encode(version=12)))
    assert decoder(FetchRequest, 12)(body).responses[0].partitions[0].records is None


def test_the_librarys_own_decoder_is_left_alone() -> None:
    """Other users of kafka-python in the same process still get bytes."""
    encoded = bytes(fetched(b"abc").encode(version=11))
    decoder(FetchRequest, 11)(memoryview(encoded))
    assert FetchResponse.decode(encoded, version=11).responses[0].partitions[0].records == b"abc"
    assert isinstance(FetchResponse.decode(encoded, version=11).responses[0].partitions[0].records, bytes)


def test_a_response_that_is_cut_anywhere_is_refused() -> None:
    """Strings and records that end early raise, although the library would return what is there."""
    whole = bytes(fetched(b"batch bytes").encode(version=11))
    decode = decoder(FetchRequest, 11)
    for end in range(len(whole)):
        with pytest.raises(Exception, match=r"."):
            decode(memoryview(whole[:end]))


def test_a_response_with_more_behind_it_is_refused() -> None:
    """Bytes left over mean that the response was misunderstood."""
    response = MetadataResponse(throttle_time_ms=0, brokers=[], cluster_id="x", controller_id=1, topics=[])
    with pytest.raises(ValueError, match="its fields take"):
        decoder(MetadataRequest, 7)(memoryview(bytes(response.encode(version=7)) + b"\0"))


def metadata(controller: int, *, topics: int = 0) -> memoryview:
    """A response that names a controller, and so many topics."""
    topic = MetadataResponse.MetadataResponseTopic
    told = [topic(error_code=0, name=f"topic-{number:040}", partitions=[]) for number in range(topics)]
    response = MetadataResponse(throttle_time_ms=0, brokers=[], cluster_id="x", controller_id=controller, topics=told)
    return memoryview(bytes(response.encode(version=7)))


def test_metadata_that_is_told_again_is_read_once() -> None:
    """The last few answers are remembered, whichever came first; another byte makes another answer."""
    decode = metadata_decoder(7)
    first, second = decode(metadata(1)), decode(metadata(2))
    assert (first.controller_id, second.controller_id) == (1, 2)
    assert decode(metadata(1)) is first
    assert decode(metadata(2)) is second
    third = decode(metadata(3))
    assert decode(metadata(2)) is second
    assert decode(metadata(3)) is third
    again = decode(metadata(1))
    assert again is not first
    assert again.controller_id == 1


def test_only_a_bounded_amount_of_metadata_is_remembered() -> None:
    """Answers of very many topics are read each time, and one connection's are not another's."""
    decode, large = metadata_decoder(7), metadata(1, topics=2_000)
    assert len(large) > REMEMBERED_BYTES
    assert decode(large) is not decode(large)
    assert len(decode(large).topics) == 2_000
    assert metadata_decoder(7)(metadata(1)) is not metadata_decoder(7)(metadata(1))


@pytest.mark.parametrize("version", [0, 3, 4])
def test_api_versions_refused_is_decoded_in_version_0(version: int) -> None:
    """A broker that does not know the version asked for answers in the oldest (KIP-511)."""
    response = ApiVersionsResponse(error_code=35, api_keys=[(18, 0, 2)])
    answer = api_versions_decoder(version)(memoryview(bytes(response.encode(version=0))))
    assert (answer.error_code, answer.api_keys[0].max_version) == (35, 2)


def test_another_error_is_decoded_in_the_version_asked_for() -> None:
    """Only a version that is not supported makes the broker change the answer's."""
    response = ApiVersionsResponse(error_code=42, api_keys=[], throttle_time_ms=7)
    answer = api_versions_decoder(3)(memoryview(bytes(response.encode(version=3))))
    assert (answer.error_code, answer.throttle_time_ms) == (42, 7)


def test_flexible_versions_are_those_of_the_schemas() -> None:
    """The table that frames made by hand rely on."""
    first = {0: 9, 1: 12, 2: 6, 3: 9, 18: 3, 22: 2, 24: 3, 26: 3, 27: 1, 36: 2, 60: 0, 61: 0}
    for api_key, version in first.items():
        assert is_flexible(api_key, version)
        assert not is_flexible(api_key, version - 1)
    assert not is_flexible(SaslHandshakeRequest.API_KEY, 1)
    assert not is_flexible(999, 0)


def test_versions_and_names() -> None:
    """Version ranges are those of the schemas; a name is Kafka's, or the number of an unknown API."""
    assert versions(CreateTopicsRequest)[0] == 2
    assert versions(ApiVersionsRequest)[0] == 0
    assert (api_name(27), api_name(12345)) == ("WriteTxnMarkers", "API 12345")
