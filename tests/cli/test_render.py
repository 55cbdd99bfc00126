"""Text columns and JSON as KIP-1279 prints them."""

import json

from tests.admin.rows import row

from twinlog.cli import render
from twinlog.control.describe import RENEWED, MirrorListing
from twinlog.control.image import Image
from twinlog.control.lifecycle import PartitionState
from twinlog.control.mirror_configs import describe_configs
from twinlog.control.records import MirrorRecord


def test_list_columns_stand_at_their_widths() -> None:
    """30, 10, 26 and 50 characters, one space between; an unknown id is a dash."""
    text = render.list_text([MirrorListing("my-mirror", "localhost:9091", "", ("a", "b"))])
    assert text.splitlines() == [
        f"{'MIRROR':<30} {'TOPICS':<10} {'SOURCE-CLUSTER-ID':<26} SOURCE-BOOTSTRAP",
        f"{'my-mirror':<30} {'2':<10} {'-':<26} localhost:9091",
    ]


def test_describe_columns_stand_at_their_widths() -> None:
    """30, 40, 10, 15, 18, 10 and 12 characters; 0 is a number, -1 is a dash."""
    rows = [
        row(source_offset=0, destination_offset=0),
        row(partition=1, source_offset=-1, state=PartitionState.UNKNOWN),
    ]
    head, first, second = render.describe_text(rows).splitlines()
    assert head[:98] == f"{'MIRROR':<30} {'TOPIC':<40} {'PARTITION':<10} {'SOURCE-OFFSET':<15}"
    assert head[98:] == f" {'DESTINATION-OFFSET':<18} {'LAG':<10} STATE"
    assert first == f"{'m':<30} {'t':<40} {'0':<10} {'0':<15} {'0':<18} {'0':<10} MIRRORING"
    assert second == f"{'m':<30} {'t':<40} {'1':<10} {'-':<15} {'10':<18} {'-':<10} UNKNOWN"


def test_a_long_name_is_shortened_from_the_left() -> None:
    """Names differ at their ends more often than at their beginnings."""
    text = render.describe_text([row(topic="x" * 50 + "-end")]).splitlines()[1]
    assert text[31:71] == "..." + "x" * 33 + "-end"


def test_failed_columns_show_retry_and_error() -> None:
    """RETRY is attempt and maximum; an error is one line, cut on the right at 80 characters."""
    rows = [row(retry_attempt=-1, error_message="Gone.\nFor good."), row(retry_attempt=2, error_message="e" * 90)]
    _, first, second = render.failed_text(rows, {"m": 10}).splitlines()
    assert first[83:] == "-1/10   Gone. For good."
    assert second[83:] == "2/10    " + "e" * 77 + "..."


def test_a_topic_that_is_made_anew_is_told_once_below_the_table() -> None:
    """Whatever number of partitions it has."""
    rows = [row(error_message=f"{RENEWED} Gone."), row(partition=1, error_message=RENEWED), row(topic="u")]
    assert render.renewals(rows) == [f"Topic t: {RENEWED}"]


def test_nothing_is_said_in_words() -> None:
    """Or as an empty array."""
    assert render.list_text([]) == "No mirrors found"
    assert render.describe_text([]) == "No mirror partitions found"
    assert render.failed_text([], {}) == "No failed partitions found"
    assert render.describe_json([]) == render.list_json([]) == "[]"


def test_json_has_the_proposals_fields_in_its_order_then_ours() -> None:
    """One object a partition, compact."""
    text = render.describe_json([row(source_offset=12, waiting_for_transaction=True, error_message="ü")])
    assert text == (
        '[{"mirror":"m","topic":"t","partition":0,"sourceOffset":12,"destinationOffset":10,"lag":2,"state":"MIRRORING",'
        '"retryAttempt":0,"errorMessage":"ü","lastMirrorEpoch":-1,"sourceHighWatermark":10,"sourceLogStartOffset":0,'
        '"waitingForTransaction":true,"startAt":"","startOffset":-1}]'
    )


def test_a_list_as_json_names_the_topics() -> None:
    """And counts them, as the table does."""
    assert json.loads(render.list_json([MirrorListing("m", "a:1", "S", ("t", "u"))])) == [
        {"mirror": "m", "topics": ["t", "u"], "topicCount": 2, "sourceClusterId": "S", "sourceBootstrap": "a:1"}
    ]


def test_a_set_of_names_looks_as_javas() -> None:
    """Sorted, so that scripts can compare."""
    assert render.names(["b", "a"]) == "[a, b]"
    assert render.names([]) == "[]"
    assert render.names(["c", "b", "a"], most=2) == "[a, b] and 1 more"
    assert render.names(["b", "a"], most=2) == "[a, b]"


def test_configs_are_two_tables_that_shorten_nothing() -> None:
    """Keys with their values, then patterns with what each refresh does; what a terminal would obey is escaped."""
    long, secret = ",".join(f"host-{number}:9092" for number in range(40)), "ssl.key.password"
    configs = {"bootstrap.servers": long, secret: "hush", "mirror.topics.include": "a\x1b.*"}
    (described,) = mirrors = describe_configs(Image([MirrorRecord("m", configs, "S")]))
    text = render.configs_text(mirrors)
    first, second = text.split("\n\n")
    assert first.splitlines()[0].split() == ["MIRROR", "KEY", "SET-BY", "VALUE"]
    assert ["m", "bootstrap.servers", "mirror", long] in [line.split() for line in first.splitlines()]
    assert ["m", secret, "mirror", "[hidden]"] in [line.split() for line in first.splitlines()]
    assert ["m", "mirror.topics.exclude", "default", "__.*"] in [line.split() for line in first.splitlines()]
    assert second.splitlines()[0].split() == ["MIRROR", "LIST", "SET-BY", "TOPICS", "PATTERN", "AT-EACH-REFRESH"]
    assert second.splitlines()[1].split()[:5] == ["m", "include", "mirror", "0", "a\\x1b.*"]
    assert render.configs_text(()) == "No mirrors found"
    (told,) = json.loads(render.configs_json(mirrors))
    assert (told["mirror"], told["sourceClusterId"], len(told["configs"])) == ("m", "S", len(described.configs))
    assert {"name": secret, "value": None, "isDefault": False, "isSensitive": True} in told["configs"]
    assert [(p["pattern"], p["list"], p["topics"]) for p in told["patterns"]] == [
        ("a\x1b.*", "include", []),
        ("__.*", "exclude", []),
    ]
