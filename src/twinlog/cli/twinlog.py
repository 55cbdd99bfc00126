"""`twinlog`: the worker, the comparison of two topics, and the demo."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from twinlog.cli.common import FAILURE, Parser, ShowVersion, UsageError, arguments, guarded, settings_of
from twinlog.errors import BadInput

PROGRAM = "twinlog"
WORKER = "worker"
NOT_COMPARED = 2
"""The exit code of `verify` for every failure: there, 1 means that the topics differ."""

OTHERS = {
    "verify": "compare a topic on two clusters, offset by offset",
    "demo": "two real clusters and a mirror, here",
    "convert-mm2": "turn a properties file of MirrorMaker 2 into mirrors",
    "salvage": "save, show or produce the diverged tail of a topic",
    "reo": "copy topics into another cluster's topics, so that each record arrives once",
}


def main(given: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = arguments(given)
    parser = Parser(prog=PROGRAM, description="Keeps Kafka topics as exact twins, offset by offset.")
    parser.add_argument("--version", action=ShowVersion)
    if not words:
        _fill(parser, words).print_help(sys.stderr)
        return FAILURE
    command = _command(words)
    return guarded(
        lambda: _run(parser, words),
        prefix="Error: ",
        program=f"{PROGRAM} {command}" if command in {WORKER, *OTHERS} else PROGRAM,
        verbose="--verbose" in words,
        failure=NOT_COMPARED if command == "verify" else FAILURE,
    )


def _run(parser: Parser, words: Sequence[str]) -> int:
    given = _fill(parser, words).parse_args(words)
    if given.command is None:
        raise UsageError(f"A command is needed: one of {', '.join((WORKER, *OTHERS))}")
    code: int = given.run(given)
    return code


def _fill(parser: Parser, words: Sequence[str]) -> Parser:
    """Add the commands; only the module of the one that is meant is loaded, since each brings much with it."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    _add_worker(commands)
    wanted = _command(words)
    for name, text in OTHERS.items():
        module = _module(name) if name == wanted else None
        if module is None:
            commands.add_parser(name, help=text)
        else:
            module.add_parser(commands)
            commands.choices[name].set_defaults(run=module.run)
    return parser


def _command(words: Sequence[str]) -> str:
    """The command that is meant: nothing that takes a value stands before it."""
    return next((word for word in words if not word.startswith("-")), "")


def _module(name: str) -> ModuleType:
    try:
        return import_module(f"twinlog.cli.{name.replace('-', '_')}")
    except ModuleNotFoundError as missing:
        raise BadInput(f"twinlog {name} needs the Python package '{missing.name}', which is not installed.") from None


def _add_worker(commands: "argparse._SubParsersAction[Any]") -> None:
    text = "run everything that is started, in the foreground"
    parser = commands.add_parser(WORKER, help=text, description=f"{text.capitalize()}; ends on SIGTERM and Ctrl-C.")
    parser.add_argument(
        "--bootstrap-server", required=True, metavar="HOST:PORT", help="the destination cluster; :9094 means localhost"
    )
    parser.add_argument("--command-config", metavar="FILE", help="client properties for talking to the destination")
    parser.add_argument(
        "--http", metavar="HOST:PORT", help="serve /metrics, /healthz and /readyz here; port 0 takes a free one"
    )
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="how events are written")
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="",
        metavar="LEVEL",
        help="debug, info (the default), warning or error",
    )
    parser.add_argument("--verbose", action="store_true", help="log more, and show where an error came from")
    parser.set_defaults(run=_worker)


def _worker(given: argparse.Namespace) -> int:
    from twinlog.service.worker import run_worker  # noqa: PLC0415  # see the package

    return run_worker(
        settings_of(given.bootstrap_server, given.command_config),
        verbose=given.verbose,
        http=given.http,
        log_format=given.log_format,
        log_level=given.log_level.upper(),
    )
