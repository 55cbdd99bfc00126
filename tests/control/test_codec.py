"""Records as bytes: what is written, what comes back, and what is refused by which rule."""

import json
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.control.codec import decode, encode, encode_key
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import (
    NO_TOPIC_ID,
    Change,
    Figure,
    MirrorRecord,
    PartitionRecord,
    ProgressRecord,
    ShardRecord,
    Skipped,
    SkippedRecord,
    Tombstone,
    TopicRecord,
    WorkerRecord,
)
from twinlog.errors import BadInput, TwinlogError, UnsupportedVersion

TEXT = st.text(max_size=20)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
UUIDS = st.integers(0, 2**128 - 1).map(lambda number: UUID(int=number))
FIGURES = st.builds(
    Figure, TEXT, TEXT, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, waiting_for_transaction=st.booleans()
)
CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(MirrorRecord, TEXT, st.dictionaries(TEXT, TEXT), TEXT),
    st.builds(TopicRecord, TEXT, TEXT, st.sampled_from(DesiredState), UUIDS, UUIDS, NUMBERS),
    st.builds(
        PartitionRecord,
        TEXT,
        TEXT,
        NUMBERS,
        st.sampled_from(PartitionState),
        producer_id=NUMBERS,
        long_runs=st.booleans(),
        error=TEXT,
        previous_state=st.sampled_from(PartitionState),
        source_topic_id=UUIDS,
    ),
    st.builds(ShardRecord, NUMBERS, TEXT, st.booleans(), st.booleans()),
    st.builds(WorkerRecord, TEXT, TEXT, NUMBERS, NUMBERS, NUMBERS),
    st.builds(ProgressRecord, NUMBERS, TEXT, NUMBERS, st.lists(FIGURES, max_size=3).map(tuple)),
    st.builds(
        SkippedRecord, TEXT, NUMBERS, st.lists(st.builds(Skipped, TEXT, TEXT, TEXT), max_size=3).map(tuple), NUMBERS
    ),
    st.builds(lambda shard: Tombstone(("shard", shard)), NUMBERS),
)


@given(CHANGES)
def test_what_is_written_comes_back(change: Change) -> None:
    """Encoding and decoding any record or tombstone gives an equal one."""
    key, value = encode(change)
    assert decode(key, value) == change
    assert decode(memoryview(key), value and memoryview(value)) == change
    assert encode_key(change.key) == key


def test_bytes_are_as_people_read_them() -> None:
    """Compact JSON with sorted names: a stored format that must not change by accident."""
    record = PartitionRecord("m", "t", 3, PartitionState.FAILED, error="müde", retry_attempt=-1)
    assert encode(record) == (
        b'["partition","m","t",3]',
        '{"checked_offset":-1,"configs_before":"","destination_topic_id":"AAAAAAAAAAAAAAAAAAAAAA","error":"müde",'
        '"filled_to":-1,"first_offset":-1,"last_filling":-1,"last_mirrored_offset":-1,'
        '"long_runs":false,"previous_state":"UNKNOWN","producer_epoch":-1,"producer_id":-1,"recoveries":0,"retry_attempt":-1,'
        '"source_topic_id":"AAAAAAAAAAAAAAAAAAAAAA","spare_producer_id":-1,"state":"FAILED","version":0}'.encode(),
    )
    figure = Figure("m", "t", 3, 0, 9, 8, 0, 7, waiting_for_transaction=True, life=6)
    assert encode(ProgressRecord(4, "w", 5, (figure,)))[1] == (
        b'{"at_ms":5,"figures":[["m","t",3,0,9,8,0,7,true,6]],"version":0,"worker":"w"}'
    )
    assert encode(MirrorRecord("m", {"b": "2", "a": "1"}, "")) == (
        b'["mirror","m"]',
        (
            b'{"configs":{"a":"1","b":"2"},"looked_exclude":[],"looked_include":[],"source_cluster_id":"",'
            b'"unstarted":[],"version":0}'
        ),
    )
    assert encode(Tombstone(("topic", "m", "t"))) == (b'["topic","m","t"]', None)


def value_of(record: Change, **changed: Any) -> bytes:
    """A record's value with some fields changed; a field of None is left out."""
    document = json.loads(encode(record)[1] or b"") | changed
    return json.dumps({name: value for name, value in document.items() if value is not None}).encode()


SHARD = ShardRecord(3, "w", released=True)


def test_unknown_fields_are_ignored_and_missing_ones_take_their_default() -> None:
    """Rule 1: a field that older programs may overlook needs no new version."""
    assert decode(b'["shard",3]', value_of(SHARD, colour="red")) == SHARD
    assert decode(b'["shard",3]', value_of(SHARD, released=None)) == ShardRecord(3, "w", released=False)
    old = b'{"configs":{"a":"1"},"source_cluster_id":"S","version":0}'
    assert decode(b'["mirror","m"]', old) == MirrorRecord("m", {"a": "1"}, "S")
    rows = [["m", "t", 3, 0, 9, 8, 0, 7, True, 6, "a later column"], ["m", "t", 4, 0, 9, 8, 0, 7, True]]
    progress = decode(b'["progress",1]', value_of(ProgressRecord(1, "w", 5), figures=rows))
    assert isinstance(progress, ProgressRecord)
    assert progress.figures == (
        Figure("m", "t", 3, 0, 9, 8, 0, 7, waiting_for_transaction=True, life=6),
        Figure("m", "t", 4, 0, 9, 8, 0, 7, waiting_for_transaction=True, life=0),
    )


def test_a_program_that_overlooks_unsettled_takes_the_shard_for_held() -> None:
    """It fences the worker and settles, which is slower and as safe: so the field needs no new version."""
    given_up = ShardRecord(3, "w", unsettled=True)
    key, value = encode(given_up)
    assert decode(key, value) == given_up
    assert not given_up.held
    overlooked = decode(key, value_of(given_up, unsettled=None))
    assert overlooked == ShardRecord(3, "w")
    assert ShardRecord(3, "w").held


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b'["comet",3]', b'{"version":0}'),
        (b'["shard",3]', value_of(SHARD, version=1)),
        (b'["shard",3]', value_of(SHARD, version=None)),
        (b'["shard",3]', value_of(SHARD, version=False)),
        (
            b'["partition","m","t",3]',
            value_of(PartitionRecord("m", "t", 3, PartitionState.PAUSED), state="EPOCH_FENCING"),
        ),
        (
            b'["topic","m","t"]',
            value_of(TopicRecord("m", "t", DesiredState.PAUSED, NO_TOPIC_ID, NO_TOPIC_ID, 1), desired="FROZEN"),
        ),
    ],
)
def test_what_a_newer_program_wrote_is_refused(key: bytes, value: bytes) -> None:
    """Rule 2: unknown types, versions and states are refused with what to do."""
    with pytest.raises(UnsupportedVersion, match=r"written by a newer twinlog.*run a twinlog at least as new"):
        decode(key, value)


def test_a_tombstone_of_an_unknown_type_is_accepted() -> None:
    """Rule 3: it removes only what would have been refused."""
    assert decode(b'["comet",3]', None) == Tombstone(("comet", 3))


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b"{}", "no key"),
        (b"\xff", b"{}", "key is not JSON"),
        (b"{}", b"{}", "not a JSON array"),
        (b"[]", b"{}", "not a JSON array"),
        (b"[3]", b"{}", "not a JSON array"),
        (b'["shard",[]]', b"{}", "something else than names and numbers"),
        (b'["shard"]', b"{}", "not one that twinlog writes"),
        (b'["shard","3"]', b"{}", "not one that twinlog writes"),
        (b'["shard",true]', b"{}", "not one that twinlog writes"),
        (b'["shard",3,4]', None, "not one that twinlog writes"),
        (b'["shard",3]', b"[" * 100_000, "value is not JSON"),
        (b'["shard",3]', b"", "value is not JSON"),
        (b'["shard",3]', b"[]", "not a JSON object"),
        (b'["shard",3]', value_of(SHARD, worker=None), "lacks the field 'worker'"),
        (b'["shard",3]', value_of(SHARD, worker=5), "field 'worker' .* expected str, found int"),
        (b'["shard",3]', value_of(SHARD, released=1), "field 'released' .* expected bool, found int"),
        (b'["worker","w"]', value_of(WorkerRecord("w", "h", 1, 2, 3), pid=True), "expected int, found bool"),
        (b'["mirror","m"]', value_of(MirrorRecord("m", {}, ""), configs={"a": 1}), "expected str, found int"),
        (b'["mirror","m"]', value_of(MirrorRecord("m", {}, ""), configs=[]), "expected dict, found list"),
        (b'["progress",3]', value_of(ProgressRecord(3, "w", 5), figures=[["m"]]), "1 columns instead of 9"),
        (b'["progress",3]', value_of(ProgressRecord(3, "w", 5), figures=[5]), "expected list, found int"),
        (
            b'["topic","m","t"]',
            value_of(TopicRecord("m", "t", DesiredState.PAUSED, NO_TOPIC_ID, NO_TOPIC_ID, 1), source_topic_id="x"),
            "not a topic id",
        ),
    ],
)
def test_foreign_bytes_are_refused(key: bytes | None, value: bytes | None, reason: str) -> None:
    """Rule 4: what is no such JSON is refused with what is wrong about it."""
    with pytest.raises(BadInput, match=reason):
        decode(key, value)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_garbage_is_a_value_or_an_error_of_ours(key: bytes, value: bytes) -> None:
    """No bytes make the decoder fail in a way of its own."""
    for made in (key, b'["shard",3]'):
        with suppress(TwinlogError):
            assert decode(made, value).key


@given(CHANGES, st.data())
def test_cut_and_damaged_values_are_refused_or_read(change: Change, data: st.DataObject) -> None:
    """A value cut or changed anywhere is a record or an error of ours."""
    key, value = encode(change)
    at = data.draw(st.integers(0, len(value or b"")))
    for damaged in ((value or b"")[:at], (value or b"")[:at] + b"\x00" + (value or b"")[at + 1 :]):
        with suppress(TwinlogError):
            assert decode(key, damaged).key == change.key


def test_topic_ids_survive() -> None:
    """Topic ids are stored in the form in which Kafka's tools print them."""
    topic_id = uuid4()
    record = TopicRecord("m", "t", DesiredState.MIRRORING, topic_id, NO_TOPIC_ID, 6)
    assert decode(*encode(record)) == record
