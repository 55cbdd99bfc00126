"""`kafka-mirrors`: KIP-1279's program, under all of its names."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.cli import mirrors_parser
from twinlog.cli.common import (
    FAILURE,
    SUCCESS,
    Parser,
    UsageError,
    arguments,
    guarded,
    note,
    quiet,
    settings_of,
)
from twinlog.errors import BadInput, TwinlogError

if TYPE_CHECKING:
    from uuid import UUID

    from twinlog.admin import DescribeMirrorsResult, MirrorAdmin, StopMirrorTopicsResult

ERROR_PREFIX = "Error while executing mirror command : "

SHOWN = 10
"""Topics or partitions that a remark names at most."""

Action = Callable[["MirrorAdmin", argparse.Namespace], Coroutine[None, None, int]]


def main(given: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = arguments(given)
    parser = mirrors_parser.build(Path(sys.argv[0]).name or "kafka-mirrors")
    if not words:
        parser.print_help(sys.stderr)
        return FAILURE
    return guarded(
        lambda: _run(parser, words), prefix=ERROR_PREFIX, usage=parser.format_usage, verbose="--verbose" in words
    )


def _run(parser: Parser, words: Sequence[str]) -> int:
    given = parser.parse_args(words)
    try:
        action = mirrors_parser.check(given)
    except mirrors_parser.NotAvailableYet as missing:
        raise BadInput(str(missing)) from None
    quiet(verbose=given.verbose)
    return asyncio.run(_connected(ACTIONS[action], given))


async def _connected(action: Action, given: argparse.Namespace) -> int:
    from twinlog.admin import MirrorAdmin  # noqa: PLC0415  # see the package

    settings = settings_of(given.bootstrap_server, given.command_config)
    _check_early(given)
    async with await MirrorAdmin.connect(settings, timeout_s=given.timeout) as admin:
        return await action(admin, given)


def _check_early(given: argparse.Namespace) -> None:
    """Refuse what needs no cluster to be seen as wrong, before one is asked."""
    from twinlog.config.mirror import check_mirror_name  # noqa: PLC0415  # see the package
    from twinlog.config.patterns import Patterns  # noqa: PLC0415  # see the package

    if given.create:
        check_mirror_name(given.mirror)
        _mirror_configs(given)
    Patterns(mirrors_parser.entries(given.topics))
    Patterns(mirrors_parser.entries(given.exclude))


async def _create(admin: "MirrorAdmin", given: argparse.Namespace) -> int:
    configs, origin = _mirror_configs(given)
    result = await admin.create_mirror(given.mirror, configs, origin=origin)
    _notes(result.notes)
    print(f"Created mirror {result.mirror}")
    return SUCCESS


def _mirror_configs(given: argparse.Namespace) -> tuple[Mapping[str, str], str]:
    """The mirror's configs: the file's, with the source's addresses of the command line if there are any."""
    from twinlog.config.bootstrap import parse_bootstrap  # noqa: PLC0415  # see the package
    from twinlog.config.mirror import MirrorConfig  # noqa: PLC0415  # see the package
    from twinlog.config.properties import Properties, read_properties  # noqa: PLC0415  # see the package

    remote = given.remote_bootstrap_server
    file = read_properties(given.mirror_config) if given.mirror_config else Properties({}, {}, "the command line")
    if remote:
        addresses = ",".join(f"[{h}]:{p}" if ":" in h else f"{h}:{p}" for h, p in parse_bootstrap(remote))
        lines = {name: file.line_of(name) for name in file}
        file = Properties({**file, "bootstrap.servers": addresses}, lines, file.origin)
    MirrorConfig.from_properties(file, file.origin)
    return file, file.origin


async def _start(admin: "MirrorAdmin", given: argparse.Namespace) -> int:
    from twinlog.cli.render import names  # noqa: PLC0415  # see the package

    topics = mirrors_parser.entries(given.topics)
    result = await admin.start_mirror_topics(
        given.mirror,
        topics,
        exclude=mirrors_parser.entries(given.exclude),
        topic_ids=_topic_ids(given.topic_id, topics),
        replication_factor=given.replication_factor,
        source_bootstrap=given.remote_bootstrap_server,
        must_exist=given.add,
    )
    _notes(result.notes)
    if result.already:
        note(f"Already mirroring in mirror {result.mirror}: {names(result.already, most=SHOWN)}")
    if result.stopped:
        note(f"Stopped, since an exclude matches now: {names(result.stopped, most=SHOWN)}")
    active = {*result.started, *result.already}
    if result.failed:
        _failures("start", result.failed, any_done=bool(active))
    if active and given.add:
        print(f"Added {len(active)} topic(s) to mirror {result.mirror}: {names(active)}")
    elif active:
        print(f"Started {len(active)} mirror topic(s) in mirror {result.mirror}: {names(active)}")
    elif not result.failed:
        print(f"No matching topics found yet. Patterns saved to mirror {result.mirror} for auto-discovery.")
    if result.pending:
        note(f"Not found at the source: {names(result.pending, most=SHOWN)}")
    return FAILURE if result.failed else SUCCESS


def _topic_ids(text: str | None, topics: Sequence[str]) -> dict[str, "UUID"]:
    from twinlog.control.records import parse_topic_id  # noqa: PLC0415  # see the package
    from twinlog.control.selection import is_name  # noqa: PLC0415  # see the package

    if text is None:
        return {}
    if len(topics) != 1 or not is_name(topics[0]):
        raise UsageError("--topic-id needs exactly one topic, given by its name")
    try:
        return {topics[0]: parse_topic_id(text)}
    except ValueError as problem:
        raise BadInput(f"--topic-id: {problem}.") from None


async def _stop(admin: "MirrorAdmin", given: argparse.Namespace) -> int:
    from twinlog.cli.render import names  # noqa: PLC0415  # see the package

    result = await admin.stop_mirror_topics(given.mirror, mirrors_parser.entries(given.topics))
    done = {*result.stopped, *result.already}
    if result.failed:
        _failures("stop", result.failed, any_done=bool(done))
    if result.failed and not done:
        return FAILURE
    if result.waiting_for and result.live_workers:
        raise TwinlogError(_unfinished(result, given.timeout))
    if given.remove:
        print(f"Removed {len(done)} topic(s) from mirror {result.mirror}: {names(done)}")
    else:
        print(f"Stopped mirroring for topics {names(done)} in mirror {result.mirror}")
    _ends(result)
    return FAILURE if result.failed else SUCCESS


def _unfinished(result: "StopMirrorTopicsResult", timeout_s: float) -> str:
    more = ", ..." if len(result.waiting_for) > SHOWN else ""
    shown = ", ".join(map(str, result.waiting_for[:SHOWN])) + more
    return (
        f"The stop is recorded, but {len(result.waiting_for)} partition(s) had not stopped after {timeout_s:g} s: "
        f"{shown}. Do not write to them before --describe shows STOPPED."
    )


def _ends(result: "StopMirrorTopicsResult") -> None:
    """Where the mirrored records end: what a failover needs to know."""
    for tp, end in result.ends.items():
        if end > 0:
            print(f"{tp}: last mirrored offset {end - 1}, log end {end}")
        elif end == 0:
            print(f"{tp}: nothing mirrored, log end 0")
    if result.waiting_for:
        note(
            f"Warning: no worker is running, so the stop is only recorded: {len(result.waiting_for)} partition(s) are "
            f"not STOPPED yet, and their last mirrored offsets are not known. Start a worker (twinlog worker) to "
            f"finish it; nothing is mirrored meanwhile."
        )


def _failures(verb: str, failed: Mapping[str, TwinlogError], *, any_done: bool) -> None:
    if len(failed) == 1 and not any_done:
        raise next(iter(failed.values()))
    for topic, error in failed.items():
        print(f"Failed to {verb} topic {topic}: {error}", file=sys.stderr)


async def _list(admin: "MirrorAdmin", given: argparse.Namespace) -> int:
    from twinlog.cli import render  # noqa: PLC0415  # see the package
    from twinlog.control.describe import List  # noqa: PLC0415  # see the package

    mirrors = await admin.list_mirrors(List(mirror=given.mirror))
    if given.json:
        print(render.list_json(mirrors), end="")
    else:
        print(render.list_text(mirrors))
    return SUCCESS


async def _describe(admin: "MirrorAdmin", given: argparse.Namespace) -> int:
    from twinlog.cli import render  # noqa: PLC0415  # see the package

    result = await admin.describe_mirrors(None if given.mirror is None else [given.mirror], failed=given.failed)
    if given.json:
        print(render.describe_json(result.partitions), end="", flush=True)
    elif given.failed:
        print(render.failed_text(result.partitions, result.retry_max_attempts))
        for row in render.cut_errors(result.partitions):
            note(f"{row.topic}-{row.partition}: {row.error_message}")
    else:
        print(render.describe_text(result.partitions))
    if not given.failed:
        _staleness(result)
    return SUCCESS


def _staleness(result: "DescribeMirrorsResult") -> None:
    """Say when the figures are not what they seem."""
    from twinlog.admin.live import STALE_MS  # noqa: PLC0415  # see the package

    advice = "" if result.live_workers else " No worker is running; start one with twinlog worker."
    if result.figures_age_ms > STALE_MS or (advice and result.figures_age_ms >= 0):
        note(f"Warning: some of these figures are {result.figures_age_ms // 1000} s old.{advice}")
    elif result.without_figures and advice:
        note(f"Warning: {result.without_figures} partition(s) have no figures yet.{advice}")


def _notes(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        note(f"Note: {sentence}")


ACTIONS: dict[str, Action] = {
    "create": _create,
    "start": _start,
    "add": _start,
    "stop": _stop,
    "remove": _stop,
    "list": _list,
    "describe": _describe,
}
