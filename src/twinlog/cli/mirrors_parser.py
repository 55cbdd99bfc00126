"""The command line of `kafka-mirrors`: its flags, and the rules that KIP-1279 has for them."""

import argparse
from collections.abc import Sequence
from typing import Final

from twinlog.cli.common import TIMEOUT_S, Parser, ShowVersion, UsageError, seconds

ACTIONS: Final = {
    "create": "create a mirror from --mirror-config",
    "start": "start mirroring --topics in --mirror",
    "add": "the same as --start",
    "stop": "stop mirroring --topics of --mirror: failover",
    "remove": "the same as --stop",
    "pause": "not available yet",
    "resume": "not available yet",
    "recover": "not available yet",
    "alter": "not available yet",
    "delete": "not available yet",
    "list": "list the mirrors",
    "describe": "describe the partitions of --mirror, or of all mirrors",
}
STARTS: Final = frozenset({"start", "add"})
SHOWS: Final = frozenset({"list", "describe"})
NOT_YET: Final = ("pause", "resume", "recover", "alter", "delete")
FLAGS_NOT_YET: Final = ("config", "delete_config", "dry_run", "all_topics")
VERBS: Final = {"start": "starting", "add": "starting", "stop": "stopping", "remove": "stopping"}

ONE_ACTION: Final = (
    "Command must include exactly one action: "
    "--create, --start, --stop, --delete, --pause, --resume, --list, or --describe"
)


class NotAvailableYet(UsageError):
    """The action or flag belongs to the surface, and this version does not have it."""


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
        help="comma-separated names and/or regexes that match whole names",
    )
    add("--exclude", action="append", metavar="LIST", help="start: comma-separated names and/or regexes to leave out")
    add("--topic-id", metavar="ID", help="start: the id that the one topic must have at the source")
    add("--replication-factor", type=_replication_factor, metavar="N", help="start: replicas of topics that are made")
    add(
        "--remote-bootstrap-server",
        metavar="HOST:PORT",
        help="create: the source cluster; start: its addresses, for this command only",
    )
    add("--json", action="store_true", help="list, describe: JSON output")
    add("--failed", action="store_true", help="describe: only failed partitions, with retry and error")
    add("--config", metavar="K=V,...", help=argparse.SUPPRESS)
    add("--delete-config", metavar="K,...", help=argparse.SUPPRESS)
    add("--dry-run", action="store_true", help=argparse.SUPPRESS)
    add("--all-topics", action="store_true", help=argparse.SUPPRESS)
    add(
        "--timeout",
        type=seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="how long to try to reach a cluster, and to wait for a stop (default: 30)",
    )
    add("--verbose", action="store_true", help="log to stderr, and show where an error came from")


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
    _check_available(given, action)
    if not given.bootstrap_server:
        raise UsageError("--bootstrap-server must be specified")
    if action not in SHOWS and not given.mirror:
        raise UsageError("--mirror must be specified")
    if action == "create" and not (given.mirror_config or given.remote_bootstrap_server):
        raise UsageError("--mirror-config must be specified when creating a mirror")
    if action in VERBS and not entries(given.topics):
        raise UsageError(f"--topics must be specified when {VERBS[action]} mirror topic(s)")
    _check_scope(given, action)
    return action


def _check_available(given: argparse.Namespace, action: str) -> None:
    missing = [action] if action in NOT_YET else [name for name in FLAGS_NOT_YET if getattr(given, name)]
    if missing:
        flag = missing[0].replace("_", "-")
        raise NotAvailableYet(f"--{flag} does not exist yet in this version of twinlog. Nothing was changed.")


def _check_scope(given: argparse.Namespace, action: str) -> None:
    """Flags that would have no effect are refused: whoever gave them expects one."""
    if given.exclude and action not in STARTS:
        raise UsageError("--exclude is only valid with --start")
    if given.json and action not in SHOWS:
        raise UsageError("--json is only supported for describing mirrors")
    if given.failed and action != "describe":
        raise UsageError("--failed is only supported for describing mirrors")
    if given.topics and action not in VERBS:
        raise UsageError("--topics is only valid with --start and --stop")
    if given.mirror_config and action != "create":
        raise UsageError("--mirror-config is only valid with --create")
    for flag in ("topic_id", "replication_factor"):
        if getattr(given, flag) is not None and action not in STARTS:
            raise UsageError(f"--{flag.replace('_', '-')} is only valid with --start")
    if given.remote_bootstrap_server and action not in {"create", *STARTS}:
        raise UsageError("--remote-bootstrap-server is only valid with --create and --start")


def entries(lists: Sequence[str] | None) -> tuple[str, ...]:
    """Names and regexes of one or more comma-separated lists, each once."""
    from twinlog.config.patterns import split_patterns  # noqa: PLC0415  # see the package

    return tuple(dict.fromkeys(entry for text in lists or () for entry in split_patterns(text)))
