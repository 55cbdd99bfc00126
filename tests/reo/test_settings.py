"""Settings of file, environment and flags."""

from pathlib import Path

import pytest

from twinlog.cli import reo as command
from twinlog.cli.common import Parser
from twinlog.errors import BadInput
from twinlog.reo.settings import ReoSettings, environment_name, from_environment, from_yaml, misspelt, without_meaning

NEEDED = {
    "kafka.clusters.source.bootstrap-servers": "a:1",
    "kafka.clusters.source.topic": "orders",
    "kafka.clusters.destination.bootstrap-servers": "b:2",
}


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    """Each one also keeps what only it says."""
    path = tmp_path / "config.yaml"
    path.write_text(
        "application: {name: of-file}\nkafka:\n  clusters:\n    source: {bootstrap-servers: 'a:1', topic: of-file}\n"
        "    destination: {bootstrap-servers: 'b:2', topic: of-file}\ncommit-interval-ms: 70\n"
    )
    parser = Parser()
    command._fill(parser)
    given = parser.parse_args(["--config", str(path), "--application-name", "of-flag", "--set", "provenance=true"])
    environment = {"APPLICATION_NAME": "of-environment", "KAFKA_CLUSTERS_SOURCE_TOPIC": "of-environment"}
    settings, _ = command.settings_from(given, environment)
    assert (settings.application, settings.source_topic, settings.destination_topic) == (
        "of-flag",
        "of-environment",
        "of-file",
    )
    assert (settings.commit_interval_ms, settings.provenance) == (70, True)


def test_security_of_both_sides_comes_by_kafkas_own_keys() -> None:
    """By environment names too."""
    environment = {environment_name(name): value for name, value in NEEDED.items()} | {
        "KAFKA_CLUSTERS_SOURCE_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "KAFKA_CLUSTERS_SOURCE_SASL_MECHANISM": "PLAIN",
        "KAFKA_CLUSTERS_SOURCE_SASL_JAAS_CONFIG": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
        ),
    }
    settings = ReoSettings.read(from_environment(environment), "the environment")
    assert settings.source.security != settings.destination.security
    assert settings.source.bootstrap == (("a", 1),)


def test_every_key_of_kafka_reo_is_known_or_answered() -> None:
    """None is refused; those without meaning say why."""
    theirs = {
        "application.name": "x",
        "kafka.clusters.destination.topic": "orders",
        "kafka.clusters.destination.topic-proxy": "orders-proxy",
        "kafka.config.consumer.fetch-min-bytes": "1048576",
        "kafka.config.consumer.auto-reset": "earliest",
        "kafka.config.producer.linger-ms": "10",
        "kafka.config.producer.compression-type": "gzip",
        "kafka.config.producer.delivery-timeout-ms": "604800000",
        "kafka.config.producer.acks": "all",
        "streams.replication-factor": "3",
        "streams.num-standby-replicas": "0",
        "streams.num-stream-threads": "3",
        "streams.buffer-config.max-bytes": "33554432",
        "LOG_LEVEL": "INFO",
    }
    settings = ReoSettings.read(NEEDED | theirs, "test")
    assert (settings.fetch_min_bytes, settings.replication_factor) == (1_048_576, 3)
    assert len(without_meaning(theirs)) == 6
    assert all("no effect here: " in sentence for sentence in without_meaning(theirs))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"aplication.name": "x"}, "perhaps application.name"),
        ({"kafka.config.producer.acks": "1"}, "acks"),
        ({"kafka.clusters.source.topic": "a,b", "kafka.clusters.destination.topic": "one"}, "{topic}"),
        ({"kafka.clusters.source.topic": ""}, "topic is missing"),
        ({"kafka.clusters.destination.bootstrap-servers": ""}, "destination.bootstrap-servers is missing"),
        ({"commit-interval-ms": "0"}, "commit-interval-ms is '0'"),
        ({"stage": "1"}, "set mode to proxy"),
        ({"stage": "3", "mode": "proxy"}, "stage is '3'"),
        ({"mode": "proxy", "kafka.clusters.destination.topic-proxy": "{topic}"}, "must not be the destination topic"),
        ({"mode": "proxy", "kafka.clusters.source.bootstrap-servers": ""}, "source.bootstrap-servers is missing"),
    ],
)
def test_a_mistake_is_named(more: dict[str, str], words: str) -> None:
    """By its key, with what would be right."""
    with pytest.raises(BadInput) as refused:
        ReoSettings.read(NEEDED | more, "test")
    assert words in str(refused.value)


def test_a_file_that_is_no_yaml_or_no_mapping_is_refused() -> None:
    """With its name."""
    for text in ("a: [", "- a\n- b"):
        with pytest.raises(BadInput, match=r"config\.yaml"):
            from_yaml(text, "config.yaml")


def test_topics_by_expression_are_renamed_by_the_rule() -> None:
    """`{topic}` stands for the source topic's name."""
    told = {"kafka.clusters.source.topic": "orders.*,plain", "kafka.clusters.destination.topic": "eu.{topic}"}
    settings = ReoSettings.read(NEEDED | told, "test")
    assert (settings.named(), settings.target("orders1")) == (("plain",), "eu.orders1")
    assert settings.expressions().matches("orders7")


def test_the_second_stage_alone_needs_nothing_of_the_source() -> None:
    """Its topics are found by the names of the proxy topics."""
    told = {
        "mode": "proxy",
        "stage": "2",
        "kafka.clusters.source.topic": "orders.*",
        "kafka.clusters.destination.topic-proxy": "through.{topic}.x",
    }
    alone = {name: value for name, value in NEEDED.items() if not name.startswith("kafka.clusters.source.boot")}
    settings = ReoSettings.read(alone | told, "test")
    assert (settings.source, settings.stage) == (None, 2)
    assert settings.proxy("orders1") == "through.orders1.x"
    names = ("through.orders1.x", "through.bills.x", "through..x", "orders1", "through.orders1.y")
    assert [settings.topic_of_proxy(name) for name in names] == ["orders1", None, None, None, None]


def test_the_proxy_topic_has_a_meaning_in_its_mode_only() -> None:
    """In direct mode it is answered like the others."""
    told = {"kafka.clusters.destination.topic-proxy": "x"}
    assert "mode is direct" in without_meaning(told)[0]
    assert without_meaning(told | {"mode": "proxy"}) == ()


def test_a_variable_that_is_nearly_a_setting_is_told() -> None:
    """It would else be ignored without a word; what is not near, as an orchestrator's own, is nobody's mistake."""
    told = misspelt({"KAFKA_CLUSTERS_DESTINATION_TOPC": "a", "COMIT_INTERVAL_MS": "5", "COMMIT_INTERVAL_MS": "5"})
    assert [sentence.split(" ")[0] for sentence in told] == ["COMIT_INTERVAL_MS", "KAFKA_CLUSTERS_DESTINATION_TOPC"]
    assert "perhaps KAFKA_CLUSTERS_DESTINATION_TOPIC was meant" in told[1]
    assert misspelt({"PATH": "/bin", "HOME": "/", "KAFKA_CLUSTERS_SOURCE_SERVICE_HOST": "a"}) == ()
