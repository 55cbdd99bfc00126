"""A mirror's configuration: KIP-1279's keys, typed, checked, stored without secrets."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.config.acls import AclRule
from twinlog.config.kinds import AclsSyncMode, BlankMode, StartOffset
from twinlog.config.mirror import MirrorConfig, check_mirror_name, config_table, filters_only_change, may_be_shown
from twinlog.config.patterns import Patterns
from twinlog.config.properties import parse_properties
from twinlog.errors import BadInput, InvalidConfig, InvalidRequest

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SOURCE = {"bootstrap.servers": "source:9092"}


def mirror(text: str = "") -> MirrorConfig:
    """Read a mirror configuration with a source, under the name m.properties; the text begins on line 2."""
    return MirrorConfig.from_properties(parse_properties(f"bootstrap.servers=s:1\n{text}", "m.properties"), "-")


def test_defaults_are_the_kips() -> None:
    """The smallest configuration has KIP-1279's defaults and our decisions."""
    config = MirrorConfig.from_properties(SOURCE, "-")
    assert config.raw == SOURCE
    assert (config.topics_include, config.topics_exclude) == (Patterns(), Patterns(("__.*",)))
    assert (config.groups_include, config.groups_exclude) == (Patterns((".*",)), Patterns())
    assert config.acls_include == (AclRule(),)
    assert config.acls_sync_mode is AclsSyncMode.ADDITIVE
    assert (config.start_offset_spec, config.blank_mode) == (StartOffset("earliest"), BlankMode.MARKER)
    assert (config.metadata_refresh_interval_ms, config.num_replica_fetchers) == (30_000, 1)
    retry = (config.failed_retry_initial_backoff_ms, config.failed_retry_max_backoff_ms)
    assert (*retry, config.failed_retry_max_attempts) == (1_000, 300_000, 10)
    assert (config.fetch_wait_max_ms, config.fetch_backoff_ms, config.fetch_min_bytes) == (1_000, 1_000, 1)
    assert (config.fetch_response_max_bytes, config.fetch_max_bytes) == (10_485_760, 1_048_576)
    assert (config.socket_timeout_ms, config.socket_receive_buffer_bytes) == (30_000, 65_536)
    assert (config.replication_throttled_rate, config.support_unclean_leader_election) == (None, Patterns())
    assert config.replication_throttled_replicas.covers("any", 0)


def test_topic_properties_of_a_cluster_are_not_copied() -> None:
    """The KIP's default list holds, and mirror.name is never copied whatever the list says."""
    config = MirrorConfig()
    assert config.copies_topic_property("retention.ms")
    assert not config.copies_topic_property("min.insync.replicas")
    assert not config.copies_topic_property("message.timestamp.type")
    assert not mirror("mirror.topic.properties.exclude=").copies_topic_property("mirror.name")


def test_exclude_is_stronger_than_include() -> None:
    """Topics and groups pass when included and not excluded."""
    config = mirror("mirror.topics.include=a.*\nmirror.topics.exclude=ab\nmirror.groups.exclude=g")
    assert [name for name in ("a", "ab", "b") if config.mirrors_topic(name)] == ["a"]
    assert [name for name in ("g", "h", "h\nh") if config.syncs_group(name)] == ["h", "h\nh"]


def test_older_names_of_keys() -> None:
    """Fetch keys without prefix and the ACL key's other name are taken, and stored under the one name."""
    config = mirror("fetch.max.bytes=2048\nmirror.acl.include=TOPIC\nsocket.receive.buffer.bytes=-1")
    assert (config.fetch_max_bytes, config.acls_include) == (2048, (AclRule("TOPIC"),))
    assert config.raw["mirror.fetch.max.bytes"] == "2048"
    assert "fetch.max.bytes" not in config.raw
    with pytest.raises(InvalidConfig, match="another name"):
        mirror("fetch.max.bytes=2048\nmirror.fetch.max.bytes=4096")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("mirror.topic.include=a", "is not a key of a mirror's configuration; perhaps mirror.topics.include was meant"),
        ("acks=all", "acks is not a key of a mirror's configuration."),
        ("mirror.fetch.max.bytes=-1", "mirror.fetch.max.bytes is '-1', but must be a whole number from 1024"),
        ("mirror.fetch.max.bytes=100000000", "to 67108864"),
        ("mirror.topics.include=a(", "the pattern 'a(' is not valid at character 2"),
        ("mirror.acls.include=THING", "mirror.acls.include is 'THING', but must name what Kafka knows"),
        ("mirror.blank.mode=none", "must be marker"),
        ("mirror.start.offset.spec=soon", "must be earliest, latest, milliseconds since 1970, or a time"),
        ("mirror.replication.throttled.rate=0", "must be a whole number from 1"),
        ("mirror.failed.retry.initial.backoff.ms=300001", "must not be above mirror.failed.retry.max.backoff.ms"),
        ("mirror.fetch.wait.max.ms=30000", "must be below request.timeout.ms"),
        ("request.timeout.ms=x", "request.timeout.ms is 'x'"),
        ("security.protocol=SASL_SSL", "needs sasl.jaas.config"),
        ("ssl.truststore.type=JKS", "must be PEM"),
        ("client.id=${vault:x}", "${vault:x} is no reference that twinlog knows"),
    ],
)
def test_what_is_wrong_is_named_with_key_file_and_line(text: str, complaint: str) -> None:
    """Unknown keys and bad values are INVALID_CONFIG."""
    with pytest.raises(InvalidConfig, match=rf"^m.properties:2: .*{re.escape(complaint)}") as problem:
        mirror(text)
    assert problem.value.error_name == "INVALID_CONFIG"


def test_a_source_is_required() -> None:
    """A configuration without bootstrap.servers is refused."""
    with pytest.raises(InvalidConfig, match=r"^--mirror-config: bootstrap.servers is missing"):
        MirrorConfig.from_properties({}, "--mirror-config")


@pytest.mark.parametrize(
    "text",
    [
        f"sasl.jaas.config={PLAIN} required username=u password=hush;",
        f'sasl.jaas.config={PLAIN} required username=u password="x${{env:A}}";',
        "sasl.jaas.config=hush",
        "ssl.key.password=hush",
        "ssl.keystore.key=-----BEGIN hush",
        "sasl.oauthbearer.client.credentials.client.secret=hush",
    ],
)
def test_a_secret_in_clear_is_refused_and_not_shown(text: str) -> None:
    """A configuration is stored, so its secrets must be references; the sentence says how to write one."""
    with pytest.raises(InvalidConfig, match=r"m.properties:2:") as problem:
        mirror(text)
    assert "hush" not in str(problem.value)
    if "BEGIN" not in text:
        assert "${env:NAME}" in str(problem.value)


def test_references_are_checked_by_the_command_and_resolved_by_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Creating a mirror needs no secret at hand; connecting does, and finds the value of the moment."""
    config = mirror(
        "security.protocol=SASL_SSL\nssl.key.password=${env:TWINLOG_TEST_KEY}\nmirror.topics.include=a\n"
        f'sasl.jaas.config={PLAIN} required username="u" password="${{env:TWINLOG_TEST_PW}}";'
    )
    assert config.raw["ssl.key.password"] == "${env:TWINLOG_TEST_KEY}"
    with pytest.raises(InvalidConfig, match="TWINLOG_TEST_PW is not set"):
        config.source_settings()
    for password in ("first", "second"):
        monkeypatch.setenv("TWINLOG_TEST_PW", password)
        monkeypatch.setenv("TWINLOG_TEST_KEY", "k")
        settings = config.source_settings()
        assert (settings.security.sasl_password, settings.security.ssl_key_password) == (password, "k")
        assert (settings.bootstrap, settings.unknown) == ((("s", 1),), ())


def test_a_whole_jaas_entry_or_address_list_may_be_a_reference() -> None:
    """What only the worker knows is not missed by the command."""
    text = "security.protocol=SASL_SSL\nsasl.mechanism=${env:M}\nsasl.jaas.config=${file:/x:jaas}"
    assert mirror(text).raw["sasl.mechanism"] == "${env:M}"
    MirrorConfig.from_properties({"bootstrap.servers": "${env:SOURCE}"}, "-")


def test_altered_sets_and_removes() -> None:
    """Changes lay over what is stored, under any name of a key; removal brings the default back."""
    config = mirror("fetch.max.bytes=2048\nmirror.topics.include=a")
    changed = config.altered({"fetch.max.bytes": "4096"}, removed=["mirror.topics.include"], origin="--config")
    assert (changed.fetch_max_bytes, changed.topics_include) == (4096, Patterns())
    assert changed.raw == {"bootstrap.servers": "s:1", "mirror.fetch.max.bytes": "4096"}
    assert config.fetch_max_bytes == 2048


def test_altering_names_where_the_mistake_is() -> None:
    """A change from a file is named by line, one from the command line by its flag."""
    with pytest.raises(InvalidConfig, match=r"^c.properties:2: mirror.fetch.max.bytes is 'x'"):
        mirror().altered(parse_properties("\nmirror.fetch.max.bytes=x", "c.properties"), origin="-")
    with pytest.raises(InvalidConfig, match=r"^--config: mirror.fetch.max.bytes is 'x'"):
        mirror().altered({"mirror.fetch.max.bytes": "x"}, origin="--config")
    with pytest.raises(InvalidConfig, match=r"^--delete-config: nothing is not a key"):
        mirror().altered({}, removed=["nothing"], origin="--delete-config")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("mirror.topics.include=b\nmirror.groups.exclude=g\nmirror.acls.include=TOPIC", True),
        ("mirror.replication.throttled.rate=1000", True),
        ("mirror.fetch.max.bytes=2048", False),
        ("mirror.topics.include=b\nclient.id=x", False),
    ],
)
def test_which_changes_need_no_new_connection(text: str, expected: bool) -> None:  # noqa: FBT001
    """Filters take effect at the next refresh; anything a connection depends on does not."""
    assert filters_only_change(mirror(), mirror(text)) is expected
    assert filters_only_change(mirror(text), mirror()) is expected


def test_the_table_can_be_printed() -> None:
    """Every key once, with a sentence and a default that parses."""
    table = config_table()
    names = [name for key in table for name in (key.name, *key.aliases)]
    assert len(set(names)) == len(names)
    for key in table:
        assert key.doc.endswith(".")
        assert key.type
        assert key.allowed
        key.kind.parse(key.default)


@given(st.dictionaries(st.sampled_from([key.name for key in config_table()]), st.text(max_size=20)))
def test_any_values_are_a_configuration_or_invalid_config(props: dict[str, str]) -> None:
    """No set of values makes reading fail in another way."""
    complaint = "-: none"
    try:
        config = MirrorConfig.from_properties(SOURCE | props, "-")
    except InvalidConfig as problem:
        complaint = str(problem)
    else:
        assert MirrorConfig.from_properties(config.raw, "-") == config
    assert complaint.startswith("-: ")


def test_mirror_names() -> None:
    """The rule, and a sentence that states it."""
    assert check_mirror_name("my.Mirror_1-x") == "my.Mirror_1-x"
    assert issubclass(InvalidRequest, BadInput)
    for name in ("", "a b", "a/b", "é", "x" * 250, "a\n"):
        with pytest.raises(InvalidRequest, match="1 to 249 ASCII letters"):
            check_mirror_name(name)


def test_what_holds_no_secret_in_clear_may_be_shown() -> None:
    """A reference may, also within a JAAS entry; of a key that is not known the name decides."""
    jaas = f'{PLAIN} required username="u" password="%s";'
    shown = ["ssl.key.password=${env:P}", "ssl.key.password=", f"sasl.jaas.config={jaas % '${env:P}'}", "a.key=1"]
    hidden = ["ssl.key.password=hush", f"sasl.jaas.config={jaas % 'hush'}", "a.secret=1"]
    assert all(may_be_shown(*text.split("=", 1)) for text in (*shown, "bootstrap.servers=a:1"))
    assert not any(may_be_shown(*text.split("=", 1)) for text in hidden)
