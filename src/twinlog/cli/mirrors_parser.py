"""The command line of `kafka-mirrors`: its flags, and the rules that KIP-1279 has for them."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from twinlog.cli.common import TIMEOUT_S, Parser, ShowVersion, UsageError, seconds

if TYPE_CHECKING:
    from twinlog.control.lifecycle import DesiredState

ACTIONS: Final = {
    "create": "create a mirror from --mirror-config",
    "start": "start mirroring --topics in --mirror",
    "add": "the same as --start",
    "stop": "stop mirroring --topics of --mirror: failover",
    "remove": "the same as --stop",
    "pause": "pause mirroring --topics of --mirror; nothing is appended any more",
    "resume": "resume paused --topics of --mirror",
    "recover": "try the failed partitions of --topics of --mirror again",
    "alter": "change the configs of --mirror",
    "delete": "delete --mirror, whose topics are all stopped",
    "list": "list the mirrors",
    "describe": "describe the partitions of --mirror, or of all mirrors; with --configs their configs",
}
STARTS: Final = frozenset({"start", "add"})
STOPS: Final = frozenset({"stop", "remove"})
SHOWS: Final = frozenset({"list", "describe"})
VERBS: Final = {
    "start": "starting",
    "add": "starting",
    "stop": "stopping",
    "remove": "stopping",
    "pause": "pausing",
    "resume": "resuming",
    "recover": "recovering",
}
ALL_TOPICS: Final = ".*"
REFUSE, RECREATE = "refuse", "recreate"
_ON_TOPICS: Final = "is only valid with --start, --stop, --pause, --resume and --recover"
_ALTERING: Final = "--config and --delete-config are only valid with --alter; --describe --configs shows configs"
_SCOPES: Final = {
    "exclude": (STARTS, "--exclude is only valid with --start"),
    "json": (SHOWS, "--json is only supported for describing mirrors"),
    "failed": ({"describe"}, "--failed is only supported for describing mirrors"),
    "skipped": ({"describe"}, "--skipped is only supported for describing mirrors"),
    "configs": ({"describe"}, "--configs is only supported for describing mirrors"),
    "source_cluster_id": (SHOWS, "--source-cluster-id is only valid with --list and --describe"),
    "states": ({"list"}, "--states is only valid with --list"),
    "topics": ({*VERBS, "describe"}, f"--topics {_ON_TOPICS}, and with --describe"),
    "all_topics": (VERBS, f"--all-topics {_ON_TOPICS}"),
    "mirror_config": ({"create", "alter"}, "--mirror-config is only valid with --create and --alter"),
    "config": ({"alter"}, _ALTERING),
    "delete_config": ({"alter"}, _ALTERING),
    "dry_run": (ACTIONS.keys() - SHOWS, "--dry-run is only valid with an action that changes something"),
    "check_lag": (STOPS, "--check-lag is only valid with --stop"),
    "on_divergence": (STARTS, "--on-divergence is only valid with --start"),
    "no_loop_check": (STARTS, "--no-loop-check is only valid with --start"),
    "salvage_dir": (STARTS, "--salvage-dir is only valid with --start"),
    "start_at": (STARTS, "--start-at is only valid with --start"),
    "topic_id": (STARTS, "--topic-id is only valid with --start"),
    "replication_factor": (STARTS, "--replication-factor is only valid with --start"),
    "remote_bootstrap_server": (
        {"create", *STARTS},
        "--remote-bootstrap-server is only valid with --create and --start",
    ),
}
"""Flags that belong to some actions only, and what is said where they are given with another."""

ONE_ACTION: Final = (
    "Command must include exactly one action: "
    "--create, --start, --stop, --delete, --pause, --resume, --list, or --describe"
)


def build(program: str) -> Parser:
    """The parser; what goes together is for `check`."""
    parser = Parser(
        prog=program,
        description="Manages mirrors: topics that are the exact twins, offset by offset, of a source cluster's topics.",
        epilog="Topics are mirrored by workers: twinlog worker --bootstrap-server DESTINATION.",
    )
    actions = parser.add_argument_group("actions (exactly one)")
    for name, text in ACTIONS.items():
        actions.add_argument(f"--{name}", action="store_true", help=text)
    _add_flags(parser)
    _add_start_flags(parser)
    _add_looking_flags(parser)
    parser.add_argument("--version", action=ShowVersion)
    return parser


def _add_flags(parser: Parser) -> None:
    add = parser.add_argument
    add("--bootstrap-server", metavar="HOST:PORT", help="the destination cluster; :9094 means localhost")
    add("--command-config", metavar="FILE", help="client properties for talking to the destination")
    add("--mirror", metavar="NAME", help="name of the mirror")
    add("--mirror-config", metavar="FILE", help="properties of the mirror to create: bootstrap.servers and so on")
    add(
        "--topics",
        "--topic",
        action="append",
        dest="topics",
        metavar="LIST",
        help="comma-separated names and/or regexes that match whole names; describe: only these",
    )
    add("--all-topics", action="store_true", help="the same as --topics '.*'")
    add(
        "--check-lag",
        action="store_true",
        help="stop: refuse while any of the topics lacks records, configs or group offsets of its source",
    )
    add(
        "--config",
        action="append",
        metavar="K=V,...",
        help="alter: configs to set; a list is written in brackets: k=[a,b]",
    )
    add("--delete-config", action="append", metavar="K,...", help="alter: configs to put back to their defaults")
    add("--dry-run", action="store_true", help="tell what would be done, and change nothing")
    add(
        "--timeout",
        type=seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="how long to try to reach a cluster, and to wait for a stop or pause (default: 30)",
    )
    add("--verbose", action="store_true", help="log to stderr, and show where an error came from")


def _add_start_flags(parser: Parser) -> None:
    add = parser.add_argument
    add("--exclude", action="append", metavar="LIST", help="start: comma-separated names and/or regexes to leave out")
    add("--topic-id", metavar="ID", help="start: the id that the one topic must have at the source")
    add("--replication-factor", type=_replication_factor, metavar="N", help="start: replicas of topics that are made")
    add(
        "--remote-bootstrap-server",
        metavar="HOST:PORT",
        help="create: the source cluster; start: its addresses, for this command only",
    )
    add(
        "--start-at",
        metavar="WHERE",
        help="start: earliest, latest, a time (ISO 8601) or ms since 1970: where to begin",
    )
    add(
        "--on-divergence",
        choices=(REFUSE, RECREATE),
        help="start: what to do where the destination holds what the source never saw: refuse (default), or save "
        "that in --salvage-dir, delete the topic there and mirror it anew",
    )
    add("--salvage-dir", type=Path, metavar="FOLDER", help="start: where --on-divergence recreate saves files")
    add(
        "--no-loop-check",
        action="store_true",
        help="start: do not ask the clusters beyond the source whether it has the topics from the destination",
    )


def _add_looking_flags(parser: Parser) -> None:
    add = parser.add_argument
    add("--json", action="store_true", help="list, describe: JSON output")
    add("--failed", action="store_true", help="describe: only failed partitions, with retry and error")
    add("--skipped", action="store_true", help="describe: what the last refresh left alone, and why")
    add(
        "--configs",
        action="store_true",
        help="describe: each config, set or default, and the patterns that create, alter, start and stop have left",
    )
    add("--source-cluster-id", metavar="ID", help="list, describe: only mirrors of this source cluster")
    add(
        "--states",
        metavar="LIST",
        help="list: topics of these desired states: MIRRORING, PAUSED, STOPPED (default: MIRRORING,PAUSED)",
    )


def _replication_factor(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 32_767:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1 to 32767")
    return int(text)


def check(given: argparse.Namespace) -> str:
    """Return the one action. Raises UsageError in the KIP's words for what does not go together."""
    actions = [name for name in ACTIONS if getattr(given, name)]
    if len(actions) != 1:
        raise UsageError(ONE_ACTION)
    action = actions[0]
    if not given.bootstrap_server:
        raise UsageError("--bootstrap-server must be specified")
    if action not in SHOWS and not given.mirror:
        raise UsageError("--mirror must be specified")
    if action == "create" and not (given.mirror_config or given.remote_bootstrap_server):
        raise UsageError("--mirror-config must be specified when creating a mirror")
    if given.all_topics and given.topics:
        raise UsageError("--all-topics and --topics exclude each other")
    if given.all_topics and action in VERBS:
        given.topics = [ALL_TOPICS]
    if action in VERBS and not entries(given.topics):
        raise UsageError(f"--topics must be specified when {VERBS[action]} mirror topic(s)")
    _check_scope(given, action)
    return action


def _check_scope(given: argparse.Namespace, action: str) -> None:
    """Flags that would have no effect are refused: whoever gave them expects one."""
    for flag, (actions, sentence) in _SCOPES.items():
        if getattr(given, flag) not in (None, False, []) and action not in actions:
            raise UsageError(sentence)
    if action == "alter" and not (given.config or given.delete_config or given.mirror_config):
        raise UsageError("--config, --delete-config or --mirror-config must be specified when altering a mirror")
    if (given.on_divergence == RECREATE) != (given.salvage_dir is not None):
        raise UsageError("--on-divergence recreate and --salvage-dir go together")
    looks = [f"--{name}" for name in ("skipped", "failed", "configs") if getattr(given, name)]
    if len(looks) > 1:
        raise UsageError(f"{' and '.join(looks)} exclude each other")
    if given.topics and (given.skipped or given.configs):
        raise UsageError(f"--topics chooses partitions, and {looks[0]} is about whole mirrors")


def desired_states(text: str | None) -> "frozenset[DesiredState] | None":
    """Read a list of desired states. Raises UsageError for what is none."""
    from twinlog.control.lifecycle import DesiredState  # noqa: PLC0415  # see the package

    if text is None:
        return None
    names = {name.strip().upper() for name in text.split(",") if name.strip()}
    unknown = sorted(names - {state.name for state in DesiredState})
    if unknown or not names:
        raise UsageError(f"--states: {', '.join(unknown) or 'nothing'} is not one of MIRRORING, PAUSED, STOPPED")
    return frozenset(DesiredState[name] for name in names)


def settings(lists: Sequence[str] | None) -> dict[str, str]:
    """Read `k=v,k=[a,b]`, as Kafka's own tools take it. Raises UsageError for what is not of that form."""
    found: dict[str, str] = {}
    for text in lists or ():
        for part in _SETTING_END.split(text):
            name, equals, value = part.partition("=")
            if not equals or not name.strip():
                raise UsageError(f"--config: '{part}' is not of the form key=value")
            bracketed = value.startswith("[") and value.endswith("]")
            found[name.strip()] = value[1:-1] if bracketed else value
    return found


_SETTING_END = re.compile(r",(?![^\[]*\])")
"""A comma that is not within brackets."""


def entries(lists: Sequence[str] | None) -> tuple[str, ...]:
    """Names and regexes of one or more comma-separated lists, each once."""
    from twinlog.config.patterns import split_patterns  # noqa: PLC0415  # see the package

    return tuple(dict.fromkeys(entry for text in lists or () for entry in split_patterns(text)))
