"""`kafka-mirrors`: KIP-1279's program, under all of its names."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from twinlog.cli import dry_run, mirrors_parser
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
from twinlog.cli.progress import waiting
from twinlog.errors import BadInput, TwinlogError, UnknownClusterMirror

if TYPE_CHECKING:
    from uuid import UUID

    from twinlog.admin import DescribeMirrorsResult, MirrorAdmin

ERROR_PREFIX = "Error while executing mirror command : "

Action = Callable[["MirrorAdmin", argparse.Namespace], Coroutine[None, None, int]]


def main(given: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = arguments(given)
    parser = mirrors_parser.build(Path(sys.argv[0]).name or "kafka-mirrors")
    if not words:
        parser.print_help(sys.stderr)
        return FAILURE
    return guarded(lambda: _run(parser, words), prefix=ERROR_PREFIX, program=parser.prog, verbose="--verbose" in words)


def _run(parser: Parser, words: Sequence[str]) -> int:
    given = parser.parse_args(words)
    action = mirrors_parser.check(given)
    quiet(verbose=given.verbose)
    return asyncio.run(_connected(ACTIONS[action], given))


async def _connected(action: Action, given: argparse.Namespace) -> int:
    from twinlog.admin import MirrorAdmin  # noqa: PLC0415  # see the package

    settings = settings_of(given.bootstrap_server, given.command_config)
    _check_early(given)
    with waiting(f"waiting for the cluster at {given.bootstrap_server}"):
        async with await MirrorAdmin.connect(settings, timeout_s=given.timeout) as admin:
            try:
                return await action(admin, given)
            except UnknownClusterMirror:
                await _name_mirrors(admin)
                raise


async def _name_mirrors(admin: "MirrorAdmin") -> None:
    """Say which mirrors there are: the name may be mistyped, or the cluster the wrong one."""
    from twinlog.cli.outcomes import SHOWN  # noqa: PLC0415  # see the package
    from twinlog.cli.render import names  # noqa: PLC0415  # see the package

    with suppress(TwinlogError):
        found = [listing.mirror for listing in await admin.list_mirrors()]
        note(f"Mirrors at this destination: {names(found, most=SHOWN) if found else 'none'}")


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
    result = await admin.create_mirror(given.mirror, configs, origin=origin, dry_run=given.dry_run)
    _notes(result.notes)
    if given.dry_run:
        print(f"Would create mirror {result.mirror} of source cluster {result.source_cluster_id or '(not contacted)'}")
        return SUCCESS
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
    from twinlog.cli import outcomes  # noqa: PLC0415  # see the package

    topics = mirrors_parser.entries(given.topics)
    result = await admin.start_mirror_topics(
        given.mirror,
        topics,
        exclude=mirrors_parser.entries(given.exclude),
        topic_ids=_topic_ids(given.topic_id, topics),
        replication_factor=given.replication_factor,
        source_bootstrap=given.remote_bootstrap_server,
        must_exist=given.add,
        dry_run=given.dry_run,
        start_at=given.start_at,
        salvage_dir=given.salvage_dir,
        loop_check=not given.no_loop_check,
    )
    return outcomes.start(result, given)


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
    from twinlog.cli import outcomes  # noqa: PLC0415  # see the package

    topics = mirrors_parser.entries(given.topics)
    result = await admin.stop_mirror_topics(given.mirror, topics, check_lag=given.check_lag, dry_run=given.dry_run)
    return outcomes.stop(result, topics, given)


async def _pause(admin: "MirrorAdmin", given: argparse.Namespace) -> int:
    from twinlog.cli import outcomes  # noqa: PLC0415  # see the package

    topics = mirrors_parser.entries(given.topics)
    result = await admin.pause_mirror_topics(given.mirror, topics, dry_run=given.dry_run)
    return outcomes.moved(outcomes.PAUSE, result, topics, given)


async def _resume(admin: "MirrorAdmin", given: argparse.Namespace) -> int:
    from twinlog.cli import outcomes  # noqa: PLC0415  # see the package

    topics = mirrors_parser.entries(given.topics)
    result = await admin.resume_mirror_topics(given.mirror, topics, dry_run=given.dry_run)
    return outcomes.moved(outcomes.RESUME, result, topics, given)


async def _recover(admin: "MirrorAdmin", given: argparse.Namespace) -> int:
    from twinlog.cli import outcomes  # noqa: PLC0415  # see the package

    topics = mirrors_parser.entries(given.topics)
    result = await admin.recover_mirror_topics(given.mirror, topics, dry_run=given.dry_run)
    return outcomes.moved(outcomes.RECOVER, result, topics, given)


async def _alter(admin: "MirrorAdmin", given: argparse.Namespace) -> int:
    from twinlog.cli.outcomes import SHOWN  # noqa: PLC0415  # see the package
    from twinlog.cli.render import names  # noqa: PLC0415  # see the package
    from twinlog.config.properties import Properties, read_properties  # noqa: PLC0415  # see the package

    configs: Mapping[str, str] = mirrors_parser.settings(given.config)
    origin = "the command line"
    if given.mirror_config:
        file = read_properties(given.mirror_config)
        lines = {name: file.line_of(name) for name in file}
        configs, origin = Properties({**file, **configs}, lines, file.origin), file.origin
    removed = [name.strip() for text in given.delete_config or () for name in text.split(",") if name.strip()]
    result = await admin.alter_mirror(given.mirror, configs, removed=removed, origin=origin, dry_run=given.dry_run)
    if given.dry_run:
        return dry_run.told({"change": result.changed, "stop (an exclude matches now)": result.stopped}, {}, {})
    if not result.changed:
        print(f"Nothing to alter in mirror {result.mirror}: its configs are so already")
        return SUCCESS
    print(f"Altered mirror {result.mirror}")
    if result.stopped:
        note(f"Stopped, since an exclude matches now: {names(result.stopped, most=SHOWN)}")
    if result.reconnects:
        note("Note: workers connect to the source anew, since more than filters has changed.")
    return SUCCESS


async def _delete(admin: "MirrorAdmin", given: argparse.Namespace) -> int:
    result = await admin.delete_mirror(given.mirror, dry_run=given.dry_run)
    if given.dry_run:
        print(f"Would delete mirror {result.mirror}; its topics stay at the destination")
        return dry_run.told({"leave": result.topics}, {}, {})
    print(f"Deleted mirror {result.mirror}")
    return SUCCESS


async def _list(admin: "MirrorAdmin", given: argparse.Namespace) -> int:
    from twinlog.cli import render  # noqa: PLC0415  # see the package
    from twinlog.control.describe import List  # noqa: PLC0415  # see the package

    desired = mirrors_parser.desired_states(given.states)
    mirrors = await admin.list_mirrors(
        List(given.mirror, given.source_cluster_id, **({} if desired is None else {"desired": desired}))
    )
    if given.json:
        print(render.list_json(mirrors), end="")
    else:
        print(render.list_text(mirrors))
    return SUCCESS


async def _describe(admin: "MirrorAdmin", given: argparse.Namespace) -> int:
    from twinlog.cli import render  # noqa: PLC0415  # see the package

    mirrors = None if given.mirror is None else [given.mirror]
    if given.configs:
        described = await admin.describe_configs(mirrors, source_cluster_id=given.source_cluster_id)
        print(render.configs_json(described) if given.json else render.configs_text(described))
        return SUCCESS
    if given.skipped:
        skipped = await admin.skipped(mirrors)
        print(render.skipped_json(skipped) if given.json else render.skipped_text(skipped))
        return SUCCESS
    topics = mirrors_parser.entries(given.topics)
    result = await admin.describe_mirrors(
        mirrors, failed=given.failed, source_cluster_id=given.source_cluster_id, topics=topics
    )
    if given.json:
        print(render.describe_json(result.partitions), end="", flush=True)
    elif given.failed:
        print(render.failed_text(result.partitions, result.retry_max_attempts))
        for row in render.cut_errors(result.partitions):
            note(f"{row.topic}-{row.partition}: {row.error_message}")
    else:
        print(render.describe_text(result.partitions))
        for renewal in render.renewals(result.partitions):
            note(renewal)
        if mirrors and not result.partitions:
            note(f"--describe --configs --mirror {given.mirror} shows which topics the mirror waits for.")
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
    "pause": _pause,
    "resume": _resume,
    "recover": _recover,
    "alter": _alter,
    "delete": _delete,
    "list": _list,
    "describe": _describe,
}
