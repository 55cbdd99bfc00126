"""A mirror's configs and patterns, as `--describe --configs` has them."""

import pytest

from twinlog.config.mirror import config_table
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState
from twinlog.control.mirror_configs import ConfigDescription, MirrorConfigs, describe_configs
from twinlog.control.records import NO_TOPIC_ID, MirrorRecord, TopicRecord
from twinlog.control.selection import EXCLUDE, INCLUDE
from twinlog.errors import UnknownClusterMirror

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def described(configs: dict[str, str], **topics: DesiredState) -> MirrorConfigs:
    """Mirror m with these configs and topics, described."""
    records = [TopicRecord("m", name, desired, NO_TOPIC_ID, NO_TOPIC_ID, 1) for name, desired in topics.items()]
    (found,) = describe_configs(Image([MirrorRecord("m", configs, "S"), *records]))
    return found


def by_name(configs: dict[str, str]) -> dict[str, ConfigDescription]:
    """The same configs by their names."""
    return {config.name: config for config in described(configs).configs}


def test_every_key_is_told_with_whether_it_is_set() -> None:
    """Those that are set first; a default is the text of the table, also where the same value is set."""
    found = described({"bootstrap.servers": "a:1", "mirror.failed.retry.max.attempts": "10"})
    names = [config.name for config in found.configs]
    assert sorted(names) == sorted(key.name for key in config_table())
    assert {config.name for config in found.configs if not config.is_default} == set(names[:2])
    configs = {config.name: config for config in found.configs}
    assert (configs["bootstrap.servers"].value, configs["mirror.topics.exclude"].value) == ("a:1", "__.*")
    assert not configs["mirror.failed.retry.max.attempts"].is_default
    assert "Retries" in configs["mirror.failed.retry.max.attempts"].doc


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("ssl.key.password", "${env:PASSWORD}", True),
        ("ssl.key.password", "hush", False),
        ("sasl.jaas.config", f'{PLAIN} required username="u" password="${{env:PASSWORD}}";', True),
        ("sasl.jaas.config", f'{PLAIN} required username="u" password="hush";', False),
        ("sasl.jaas.config", "hush", False),
    ],
)
def test_a_secret_is_shown_by_its_reference_only(name: str, value: str, *, shown: bool) -> None:
    """One that stands there in clear, whoever wrote it, is never told."""
    config = by_name({name: value})[name]
    assert (config.value, config.is_sensitive) == (value if shown else None, True)


def test_keys_that_this_version_does_not_know_come_last() -> None:
    """Left by another version: shown, unless its name sounds like a secret."""
    configs = described({"new.key": "1", "new.password": "hush"}).configs[-2:]
    assert [(c.name, c.value, c.is_sensitive, c.doc) for c in configs] == [
        ("new.key", "1", False, ""),
        ("new.password", None, True, ""),
    ]


def test_each_pattern_is_told_with_its_topics_and_what_a_refresh_does() -> None:
    """A typo that a start has kept is seen by its having no topic."""
    on, off = DesiredState.MIRRORING, DesiredState.STOPPED
    found = described({INCLUDE: "orders,ordrs,log.*,old-1", EXCLUDE: "old-.*"}, orders=on, logs=off, login=on).patterns
    assert [(p.pattern, p.list, p.is_default, p.topics) for p in found] == [
        ("orders", "include", False, ("orders",)),
        ("ordrs", "include", False, ()),
        ("log.*", "include", False, ("login", "logs")),
        ("old-1", "include", False, ()),
        ("old-.*", "exclude", False, ()),
    ]
    assert [pattern.effect.partition(":")[0] for pattern in found[:2]] == ["nothing", "waited for"]
    assert found[0].effect.endswith("is to be MIRRORING")
    assert "is started, once there is one that is new" in found[2].effect
    assert found[3].effect == "nothing: an exclude pattern matches it"
    assert "is not started" in found[4].effect


def test_the_default_patterns_are_told_as_such() -> None:
    """Nothing is included, and internal names are excluded."""
    (pattern,) = described({}).patterns
    assert (pattern.pattern, pattern.list, pattern.is_default) == ("__.*", "exclude", True)


def test_a_pattern_that_cannot_be_read_matches_nothing() -> None:
    """Configs that another version has stored are shown all the same."""
    found = described({INCLUDE: "a[,orders", EXCLUDE: "b["}, orders=DesiredState.MIRRORING).patterns
    assert [pattern.topics for pattern in found] == [(), ("orders",), ()]
    assert described({INCLUDE: "orders", EXCLUDE: "b["}).patterns[0].effect.startswith("waited for")


def test_mirrors_are_chosen_by_name_and_source() -> None:
    """By name order; one that does not exist is an error."""
    image = Image([MirrorRecord("b", {}, "T"), MirrorRecord("a", {}, "S")])
    assert [(m.mirror, m.source_cluster_id) for m in describe_configs(image)] == [("a", "S"), ("b", "T")]
    assert [m.mirror for m in describe_configs(image, source_cluster_id="T")] == ["b"]
    assert [m.mirror for m in describe_configs(image, ["a"])] == ["a"]
    with pytest.raises(UnknownClusterMirror, match="Mirror 'c' not found"):
        describe_configs(image, ["c"])
