"""Produce and WriteTxnMarkers by hand, compared with the library's own encoding and decoding."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer.produce import ProduceRequest, ProduceResponse
from kafka.protocol.producer.transaction import WriteTxnMarkersRequest

from twinlog.wire.produce import (
    NEWEST_PRODUCE,
    MarkerRun,
    PartitionBatch,
    Produced,
    decode_produce_answer,
    decode_produced,
    encode_markers,
    encode_produce,
)

VERSIONS = range(3, NEWEST_PRODUCE + 1)
PART = ProduceResponse.TopicProduceResponse.PartitionProduceResponse


def _response(answers: dict[str, list[tuple[int, int, int, str | None]]], version: int) -> memoryview:
    """A response with (partition, code, base offset, message) for each topic."""
    topics = [
        ProduceResponse.TopicProduceResponse(
            name=name,
            partition_responses=[
                PART(
                    index=index,
                    error_code=code,
                    base_offset=offset,
                    log_append_time_ms=-1,
                    log_start_offset=0,
                    record_errors=[],
                    error_message=message,
                )
                for index, code, offset, message in parts
            ],
        )
        for name, parts in answers.items()
    ]
    return memoryview(ProduceResponse(responses=topics, throttle_time_ms=7).encode(version=version))


def _request(**fields: Any) -> tuple[list[tuple[str, list[PartitionBatch]]], ProduceRequest]:
    """The same request for our encoder and for the library's."""
    batches = {"a": [(0, b"h" * 61, b"x" * 200), (1, b"i" * 61, b"y")], "b" * 200: [(7, b"j" * 61, b"z" * 20_000)]}
    ours = [(name, [PartitionBatch(n, head, memoryview(body)) for n, head, body in of]) for name, of in batches.items()]
    kind = ProduceRequest.TopicProduceData
    data = [
        kind(
            name=name,
            partition_data=[kind.PartitionProduceData(index=n, records=head + body) for n, head, body in of],
        )
        for name, of in batches.items()
    ]
    return ours, ProduceRequest(topic_data=data, **fields)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transactional_id", [None, "fill"])
def test_produce_is_encoded_as_the_library_does(version: int, transactional_id: str | None) -> None:
    """Byte for byte, in every version, with several topics and partitions."""
    ours, theirs = _request(transactional_id=transactional_id, acks=-1, timeout_ms=30_000)
    chunks = encode_produce(version, ours, acks=-1, timeout_ms=30_000, transactional_id=transactional_id)
    assert b"".join(chunks) == theirs.encode(version=version)


@pytest.mark.parametrize("version", VERSIONS)
def test_accepted_answers_are_read_in_every_version(version: int) -> None:
    """Each topic and partition with its base offset."""
    view = _response({"a": [(0, 0, 100, None), (3, 0, 7, None)], "b": [(1, 0, 2**40, None)]}, version)
    assert decode_produced(version, view) == {
        ("a", 0): Produced(0, 100, ""),
        ("a", 3): Produced(0, 7, ""),
        ("b", 1): Produced(0, 2**40, ""),
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("code", [0, 45])
def test_throttle_time_counts_where_the_broker_has_not_waited_itself(version: int, code: int) -> None:
    """Since version 6 the broker throttles behind its answer (KIP-219); whichever way the answer is read."""
    answer = decode_produce_answer(version, _response({"a": [(0, code, 100, None)]}, version))
    assert answer.throttle_ms == (7 if version >= 6 else 0)
    assert answer.partitions["a", 0].code == code


@pytest.mark.parametrize("version", VERSIONS)
def test_refusals_are_read_in_every_version(version: int) -> None:
    """One refused partition among accepted ones, with its message where the version has one."""
    view = _response({"a": [(0, 0, 100, None), (1, 45, -1, "out of order"), (2, 0, 5, None)]}, version)
    found = decode_produced(version, view)
    assert found["a", 0] == Produced(0, 100, "")
    assert found["a", 1] == Produced(45, -1, "out of order" if version >= 8 else "")
    assert found["a", 2] == Produced(0, 5, "")


@given(
    answers=st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=140),
        st.dictionaries(
            st.integers(0, 2**31 - 1),
            st.tuples(st.sampled_from([0, 0, 0, 6, 45]), st.integers(-1, 2**63 - 1), st.sampled_from([None, "", "no"])),
            max_size=140,
        ),
        max_size=4,
    ),
    version=st.sampled_from(VERSIONS),
)
def test_any_answer_is_read_as_the_library_reads_it(
    answers: dict[str, dict[int, tuple[int, int, str | None]]], version: int
) -> None:
    """Whatever the fast way makes of a response, the library makes of it."""
    listed = {name: [(index, *rest) for index, rest in parts.items()] for name, parts in answers.items()}
    view = _response(listed, version)
    answer = ProduceResponse.decode(view, version=version)
    assert decode_produced(version, view) == {
        (topic.name, part.index): Produced(part.error_code, part.base_offset, getattr(part, "error_message", "") or "")
        for topic in answer.responses
        for part in topic.partition_responses
    }


@pytest.mark.parametrize("version", [0, 1])
def test_markers_are_encoded_one_by_one(version: int) -> None:
    """Each run becomes as many abort markers as it has blanks, in the order given."""
    runs = [MarkerRun("a", 3, producer_id=9, epoch=4, count=2, coordinator_epoch=5), MarkerRun("b", 0, 8, 1, 1)]
    kind = WriteTxnMarkersRequest.WritableTxnMarker
    markers = [
        kind(
            producer_id=run.producer_id,
            producer_epoch=run.epoch,
            transaction_result=False,
            topics=[kind.WritableTxnMarkerTopic(name=run.topic, partition_indexes=[run.partition])],
            coordinator_epoch=run.coordinator_epoch,
        )
        for run in runs
        for _ in range(run.count)
    ]
    expected = WriteTxnMarkersRequest(markers=markers).encode(version=version)
    assert b"".join(bytes(chunk) for chunk in encode_markers(version, runs)) == expected
