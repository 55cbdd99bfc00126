"""Settings of MirrorMaker 2 turned into mirrors."""

import pytest

from twinlog.config.mirror import MirrorConfig
from twinlog.config.mm2 import Converted, convert
from twinlog.config.properties import parse_properties
from twinlog.errors import BadInput, InvalidConfig

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required username=u password=hush;"
FILE = rf"""
clusters = one, two
one.bootstrap.servers = one:9092
two.bootstrap.servers = two:9092
one.security.protocol = SASL_SSL
one.sasl.jaas.config = {LOGIN}
one->two.enabled = true
one->two.topics = orders, pay.*
one->two.sync.topic.acls.enabled = false
two->one.enabled = false
groups = g-.*
refresh.topics.interval.seconds = 5
replication.factor = 3
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
tasks.max = 4
two.producer.linger.ms = 5
emit.heartbeats.enabled = true
strange.setting = 1
"""


def converted(text: str) -> Converted:
    """Convert a text under the name mm2.properties."""
    return convert(parse_properties(text, "mm2.properties"))


def test_each_enabled_flow_is_a_mirror() -> None:
    """Settings of the flow, of its clusters and of all flows arrive under their names here, in the units here."""
    (flow,) = converted(FILE).flows
    assert (flow.name, flow.bootstrap, flow.replication_factor) == ("one-to-two", "two:9092", "3")
    assert flow.destination == {}
    wanted = {
        "bootstrap.servers": "one:9092",
        "security.protocol": "SASL_SSL",
        "mirror.topics.include": "orders, pay.*",
        "mirror.groups.include": "g-.*",
        "mirror.acls.sync.mode": "off",
        "mirror.metadata.refresh.interval.ms": "5000",
    }
    assert wanted.items() <= flow.mirror.items()
    assert MirrorConfig.from_properties(flow.mirror, "converted").topics_include.matches("payments")


def test_a_secret_becomes_a_reference_with_a_note() -> None:
    """It is in nothing that is written or printed."""
    result = converted(FILE)
    assert result.flows[0].mirror["sasl.jaas.config"] == "${env:ONE_SASL_JAAS_CONFIG}"
    assert "hush" not in repr(result)
    (note,) = [left for left in result.left if left.name == "one.sasl.jaas.config"]
    assert "environment variable ONE_SASL_JAAS_CONFIG" in note.reason
    kept = converted(FILE.replace(LOGIN, "${env:MINE}"))
    assert kept.flows[0].mirror["sasl.jaas.config"] == "${env:MINE}"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("tasks.max", "start as many workers"),
        ("two.producer.linger.ms", "no consumer and producer"),
        ("emit.heartbeats.enabled", "--describe"),
        ("replication.policy.class", "is not needed"),
        ("two->one.enabled", "a flow that is not enabled"),
        ("strange.setting", "has no counterpart"),
    ],
)
def test_what_has_no_counterpart_is_told_with_its_line(name: str, reason: str) -> None:
    """Nothing is dropped in silence."""
    (left,) = [left for left in converted(FILE).left if left.name == name]
    assert reason in left.reason
    line = next(n for n, text in enumerate(FILE.splitlines(), 1) if text.startswith(f"{name} "))
    assert left.where == f"mm2.properties:{line}"


def test_no_groups_where_they_were_not_synced() -> None:
    """A switch that is off becomes a filter that lets nothing in."""
    (flow,) = converted(FILE + "sync.group.offsets.enabled=false\n").flows
    assert flow.mirror["mirror.groups.exclude"] == ".*"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x=1", "clusters is missing"),
        ("clusters=a,b", "no flow is enabled"),
        ("clusters=a,b\na->b.enabled=true", "a.bootstrap.servers is missing"),
        (FILE + "one->two.topics=(\n", "one->two.topics cannot be converted"),
        (FILE + "refresh.topics.interval.seconds=x\n", "cannot be converted"),
    ],
)
def test_files_that_cannot_be_converted(text: str, complaint: str) -> None:
    """What is missing or wrong is named."""
    with pytest.raises(BadInput, match=complaint):
        converted(text)


def test_a_converted_value_is_checked_as_a_mirror_checks_it() -> None:
    """A file that `--create` would refuse is not written."""
    with pytest.raises(InvalidConfig, match=r"ssl\.truststore\.type"):
        converted(FILE + "one.ssl.truststore.type=JKS\n")
