"""`twinlog reo`, also installed as `kafka-reo`: copy topics into another cluster's topics, each record once."""

import argparse
import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from twinlog.cli.common import SUCCESS, Parser, ShowVersion, arguments, guarded, note
from twinlog.errors import BadInput
from twinlog.reo.run import copy
from twinlog.reo.settings import ReoSettings, from_environment, from_yaml, misspelt, without_meaning
from twinlog.reo.sharing import Board
from twinlog.reo.status import status
from twinlog.service.copy_metrics import CopyEndpoints
from twinlog.service.http import HttpServer, listening
from twinlog.service.membership import Membership

TEXT = "copy topics into another cluster's topics, so that each record arrives once"
FLAGS = {
    "application_name": "application.name",
    "source_bootstrap_server": "kafka.clusters.source.bootstrap-servers",
    "source_topic": "kafka.clusters.source.topic",
    "destination_bootstrap_server": "kafka.clusters.destination.bootstrap-servers",
    "destination_topic": "kafka.clusters.destination.topic",
    "mode": "mode",
    "stage": "stage",
    "proxy_topic": "kafka.clusters.destination.topic-proxy",
    "shares": "shares",
    "start_from": "start-from",
}


HEADS = ("topic", "partition", "position", "end", "lag", "error")


def main(given: Sequence[str] | None = None) -> int:
    """Run as a program of its own; returns the exit code."""
    words = arguments(given)
    parser = Parser(prog="kafka-reo", description=TEXT)
    parser.add_argument("--version", action=ShowVersion)
    _fill(parser)
    return guarded(
        lambda: run(parser.parse_args(words)),
        prefix="Error: ",
        program=parser.prog,
        verbose="--verbose" in words,
    )


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the command to `twinlog`."""
    _fill(commands.add_parser("reo", help=TEXT, description=TEXT))


def _fill(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--config", metavar="FILE", help="settings as YAML; the environment wins over it, flags over both")
    for flag, name in FLAGS.items():
        add(f"--{flag.replace('_', '-')}", metavar="VALUE", help=f"the setting {name}")
    add("--http", metavar="HOST:PORT", help="serve /metrics, /healthz and /readyz here; port 0 takes a free one")
    add("--set", metavar="NAME=VALUE", action="append", default=[], help="any other setting; may be repeated")
    add("--status", action="store_true", help="print where each partition stands, and end")
    add("--json", action="store_true", help="with --status: print one JSON object")
    add("--verbose", action="store_true", help="log more, and show where an error came from")


def settings_from(given: argparse.Namespace, environment: dict[str, str]) -> tuple[ReoSettings, tuple[str, ...]]:
    """The settings of file, environment and flags, and a sentence for each that has no effect, or none by its name."""
    values: dict[str, str] = {}
    if given.config:
        values |= from_yaml(_text(given.config), given.config)
    values |= from_environment(environment)
    values |= {name: told for flag, name in FLAGS.items() if (told := getattr(given, flag)) is not None}
    for pair in given.set:
        name, equals, value = pair.partition("=")
        if not equals:
            raise BadInput(f"--set {name} must be NAME=VALUE.")
        values[name.strip()] = value
    return ReoSettings.read(values, "the settings"), (*without_meaning(values), *misspelt(environment))


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise BadInput(f"--config {path} cannot be read: {problem}.") from None


def run(given: argparse.Namespace) -> int:
    """Copy until told to end, or print the status."""
    settings, sentences = settings_from(given, dict(os.environ))
    for sentence in sentences:
        note(f"Note: {sentence}")
    level = {"TRACE": "DEBUG", "WARN": "WARNING"}.get(settings.log_level, settings.log_level)
    logging.basicConfig(
        level="DEBUG" if given.verbose else level, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if given.status:
        rows = asyncio.run(status(settings))
        print(json.dumps({"partitions": rows}, indent=2) if given.json else _table(rows))
        return SUCCESS
    at = listening(given.http) if given.http is not None else None
    with asyncio.Runner(loop_factory=_loop()) as runner:
        runner.run(_until_told(settings, at))
    return SUCCESS


def _loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415  # absent on platforms without it
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _until_told(settings: ReoSettings, at: socket.socket | None) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    board = Board()
    server = None if at is None else HttpServer(CopyEndpoints(board), at)
    try:
        await copy(settings, stopping, join=partial(_member, settings), board=board)
    finally:
        if server is not None:
            await server.close()


def _member(
    settings: ReoSettings,
    *,
    group: str,
    topic: str,
    on_gained: Callable[[Collection[int]], None],
    on_taken: Callable[[Collection[int]], Awaitable[None]],
) -> Membership:
    return Membership(
        settings.destination,
        on_gained=on_gained,
        on_taken=on_taken,
        client_id=f"twinlog-reo-{settings.application}",
        group=group,
        topic=topic,
    )


def _table(rows: Sequence[dict[str, Any]]) -> str:
    heads = tuple(head for head in rows[0] if head != "begins") if rows else HEADS
    lines = [heads, *(tuple(_cell(row, head) for head in heads) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cell(row: dict[str, Any], head: str) -> str:
    if head == "position" and row[head] is None and row["begins"] is not None:
        return f"nothing copied yet, begins at {row['begins']}"
    return "-" if row[head] is None else str(row[head])
