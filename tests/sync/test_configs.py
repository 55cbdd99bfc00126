"""The configs of a destination topic: what is copied, what always wins, and what the destination does not take."""

from collections.abc import Mapping
from typing import Any

import pytest

from twinlog.config.mirror import MirrorConfig
from twinlog.errors import AuthorizationFailed, InvalidConfig
from twinlog.sync import configs
from twinlog.sync.configs import (
    LONG_MAX,
    ConfigPlan,
    DestinationDefaults,
    SourceConfigs,
    apply,
    changes,
    min_insync,
    plan,
    read_current,
    read_defaults,
    read_source,
    refusals,
    removals,
)
from twinlog.wire.ops import ConfigEntry

MODERN = frozenset(
    {
        "cleanup.policy",
        "compression.type",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.insync.replicas",
        "retention.ms",
    }
)
OLD = MODERN - {"message.timestamp.after.max.ms", "message.timestamp.before.max.ms"}
NEEDED = {
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "max.message.bytes": "1048588",
    "message.timestamp.before.max.ms": str(LONG_MAX),
    "message.timestamp.after.max.ms": str(LONG_MAX),
}
CLUSTER: Any = None


def entry(name: str, value: str | None, *, own: bool = True) -> ConfigEntry:
    """A config as a broker tells it."""
    return ConfigEntry(name, value, "DYNAMIC_TOPIC_CONFIG" if own else "DEFAULT_CONFIG", False, False)


def mirror(**keys: str) -> MirrorConfig:
    """A mirror's configuration; `_` in a key stands for a dot."""
    props = {"bootstrap.servers": "a:1"} | {key.replace("_", "."): value for key, value in keys.items()}
    return MirrorConfig.from_properties(props, "test")


def planned(overrides: Mapping[str, str], *, known: frozenset[str] = MODERN, **more: Any) -> ConfigPlan:
    """A plan for a source topic with these overrides."""
    config = more.pop("config", mirror())
    defaults = DestinationDefaults(known, more.pop("default_factor", 3), more.pop("default_insync", 2))
    return plan(SourceConfigs(overrides, 1_048_588), config, defaults, **more)


def test_overrides_are_copied_under_the_necessities() -> None:
    """What the source sets is set, but for what would make the destination change or refuse batches."""
    made = planned({"retention.ms": "5", "compression.type": "gzip", "message.timestamp.type": "LogAppendTime"})
    assert made.configs == NEEDED | {"retention.ms": "5"}
    assert made.optional == {"retention.ms": "5"}
    assert made.notes == ()


def test_excluded_properties_are_not_copied() -> None:
    """The default excludes min.insync.replicas; a list of one's own replaces the default, never the necessities."""
    assert planned({"min.insync.replicas": "1"}).configs == NEEDED
    config = mirror(mirror_topic_properties_exclude="retention.*,max.message.bytes")
    made = planned({"retention.ms": "5", "cleanup.policy": "compact"}, config=config)
    assert made.configs == NEEDED | {"cleanup.policy": "compact"}


def test_what_the_destination_does_not_know_is_left_out_and_listed() -> None:
    """A vendor's key does not keep the topic from being made."""
    made = planned({"retention.ms": "5", "vendor.key": "x"})
    assert made.configs == NEEDED | {"retention.ms": "5"}
    assert made.left_out == {"vendor.key": "the destination has no such config"}


def test_an_old_destination_gets_its_own_limit_on_timestamps() -> None:
    """Before 3.6 one key stood for both directions."""
    made = planned({}, known=OLD)
    assert made.configs["message.timestamp.difference.max.ms"] == str(LONG_MAX)
    assert not made.left_out
    assert "message.timestamp.before.max.ms" not in made.configs


def test_without_a_list_of_known_configs_everything_is_tried() -> None:
    """A client that may not ask finds out by trying."""
    assert planned({"vendor.key": "x"}, known=frozenset()).configs == NEEDED | {"vendor.key": "x"}


@pytest.mark.parametrize(
    ("factor", "insync", "lowered"), [(1, -1, "1"), (2, -1, None), (-1, -1, None), (1, 1, None), (2, 3, "2")]
)
def test_min_insync_replicas_never_exceed_the_replicas(factor: int, insync: int, lowered: str | None) -> None:
    """With more in-sync replicas demanded than there are, no write could ever succeed."""
    made = planned({}, replication_factor=factor, min_insync_replicas=insync)
    assert made.configs.get("min.insync.replicas") == lowered
    assert len(made.notes) == (lowered is not None)


def test_a_copied_min_insync_replicas_is_lowered_too() -> None:
    """It counts above the destination's default."""
    made = planned({"min.insync.replicas": "3"}, config=mirror(mirror_topic_properties_exclude="x"), default_factor=2)
    assert made.configs["min.insync.replicas"] == "2"
    assert "min.insync.replicas" not in made.optional


def test_only_what_differs_is_changed_and_sizes_are_never_lowered() -> None:
    """An existing topic keeps a larger limit, and what is as it should be is not written again."""
    current = {
        "compression.type": entry("compression.type", "gzip"),
        "message.timestamp.type": entry("message.timestamp.type", "CreateTime", own=False),
        "max.message.bytes": entry("max.message.bytes", "9999999"),
    }
    assert changes(current, planned({})).keys() == {
        "compression.type",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
    }


async def test_refusals_tries_each_config_alone() -> None:
    """One bad value is found among good ones."""

    async def attempt(name: str) -> None:
        if name == "b":
            raise InvalidConfig("no.")

    assert await refusals(["c", "b", "a"], attempt) == {"b": "no."}


class Broker:
    """Answers for `describe_configs` and `alter_configs`; `denied` names what may not be described."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, topics: dict[str, dict[str, ConfigEntry]]) -> None:
        self.brokers = {5: None, 3: None}
        self.topics = topics
        self.denied: set[str] = set()
        self.bad_values: set[str] = set()
        self.altered: list[tuple[dict[str, str], bool]] = []
        self.deleted: list[str] = []
        monkeypatch.setattr(configs, "describe_configs", self.describe)
        monkeypatch.setattr(configs, "alter_configs", self.alter)

    async def describe(self, _cluster: Any, _kind: str, names: list[str], *, keys: Any = None) -> Any:
        """Tell the configs of each, or refuse all for one that is denied."""
        if self.denied.intersection(names):
            raise AuthorizationFailed("Denied.")
        return {
            name: {key: told for key, told in self.topics[name].items() if keys is None or key in keys}
            for name in names
        }

    async def alter(
        self,
        _cluster: Any,
        _kind: str,
        name: str,
        *,
        set_to: Any,
        delete: Any = (),
        validate_only: bool = False,
    ) -> None:
        """Note the change, or refuse it."""
        self.deleted += delete
        if name in self.denied:
            raise AuthorizationFailed("Denied.")
        if self.bad_values.intersection(set_to):
            raise InvalidConfig("bad value.")
        self.altered.append((dict(set_to), validate_only))


async def test_a_source_topic_that_may_not_be_described_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Overrides are told apart from defaults, and the error of one topic names the right."""
    told = {
        "retention.ms": entry("retention.ms", "5"),
        "max.message.bytes": entry("max.message.bytes", "77", own=False),
        "secret": entry("secret", None),
    }
    broker = Broker(monkeypatch, {"good": told, "bad": told})
    broker.denied = {"bad"}
    found = await read_source(CLUSTER, ["good", "bad"])
    assert found["good"] == SourceConfigs({"retention.ms": "5"}, 77)
    assert "DESCRIBE_CONFIGS on topic 'bad'" in str(found["bad"])


async def test_defaults_are_unknown_where_they_may_not_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lowest broker is asked; a refusal leaves everything unknown."""
    told = {"default.replication.factor": entry("x", "3"), "min.insync.replicas": entry("x", "2")}
    broker = Broker(monkeypatch, {"__mirror_state": {"retention.ms": entry("x", "5")}, "3": told})
    asked: Any = broker
    assert await read_defaults(asked) == DestinationDefaults(frozenset({"retention.ms"}), 3, 2)
    broker.denied = {"__mirror_state", "3"}
    assert await read_defaults(asked) == DestinationDefaults()


async def test_apply_leaves_out_what_is_refused_and_sets_the_rest_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Optional configs are validated one by one; nothing is written when nothing differs."""
    current = {name: entry(name, value) for name, value in NEEDED.items()} | {"min.insync.replicas": entry("x", "2")}
    broker = Broker(monkeypatch, {"t": current})
    broker.bad_values = {"retention.ms"}
    wanted = planned({"retention.ms": "x", "cleanup.policy": "compact"})
    done = await apply(CLUSTER, "t", wanted, await read_current(CLUSTER, "t"))
    assert done.left_out == {"retention.ms": "bad value."}
    assert broker.altered == [({"cleanup.policy": "compact"}, True), ({"cleanup.policy": "compact"}, False)]
    broker.altered.clear()
    assert (await apply(CLUSTER, "t", planned({}), current)).configs == NEEDED
    assert broker.altered == []
    assert min_insync(current) == 2


async def test_removals_are_followed_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only the destination sets goes; necessities, excluded configs and what a broker sets stay."""
    own = {"retention.ms": "5", "cleanup.policy": "compact", "min.insync.replicas": "2"}
    current = {name: entry(name, value) for name, value in (NEEDED | own).items()}
    current["segment.ms"] = entry("segment.ms", "7", own=False)
    broker = Broker(monkeypatch, {"t": current})
    source = {"cleanup.policy": "compact", "vendor.key": "x"}
    await apply(CLUSTER, "t", planned(source), current)
    assert (broker.altered, broker.deleted) == ([], [])
    planned_now = planned(source, config=mirror(mirror_configs_sync_removals="true"))
    assert removals(current, planned_now) == ["retention.ms"]
    await apply(CLUSTER, "t", planned_now, current)
    assert (broker.altered, broker.deleted) == ([({}, False)], ["retention.ms"])


def test_what_the_source_sets_and_the_destination_refuses_is_not_taken_away() -> None:
    """The value that the destination has is no leftover."""
    current = {"retention.ms": entry("retention.ms", "5")}
    made = planned({"retention.ms": "9"}, config=mirror(mirror_configs_sync_removals="true"))
    assert removals(current, made.without({"retention.ms": "bad value."})) == []


async def test_missing_rights_at_the_destination_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading and changing configs need a right each."""
    broker = Broker(monkeypatch, {"t": {}})
    broker.denied = {"t"}
    with pytest.raises(AuthorizationFailed, match="DESCRIBE_CONFIGS on topic 't'"):
        await read_current(CLUSTER, "t")
    with pytest.raises(AuthorizationFailed, match="ALTER_CONFIGS on topic 't'"):
        await apply(CLUSTER, "t", planned({}), {})
