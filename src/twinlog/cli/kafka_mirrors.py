"""`kafka-mirrors`: KIP-1279's program, under all of its names."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
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
from twinlog.errors import BadInput, TwinlogError

if TYPE_CHECKING:
    from uuid import UUID

    from twinlog.admin import (
        DescribeMirrorsResult,
        MirrorAdmin,
        MoveMirrorTopicsResult,
        StartMirrorTopicsResult,
        StopMirrorTopicsResult,
    )

ERROR_PREFIX = "Error while executing mirror command : "

_NOBODY = (
    "Warning: no worker is running, so the {verb} is only recorded. Start a worker (twinlog worker) to have it done."
)

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
    action = mirrors_parser.check(given)
    quiet(verbose=given.verbose)
    return asyncio.run(_connected(ACTIONS[action], given))


async def _connected(action: Action, given: argparse.Namespace) -> int:
    from twinlog.admin import MirrorAdmin  # noqa: PLC0415  # see the package

    settings = settings_of(given.bootstrap_server, given.command_config)
    _check_early(given)
    with waiting(f"waiting for the cluster at {given.bootstrap_server}"):
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
        dry_run=given.dry_run,
        start_at=given.start_at,
        salvage_dir=given.salvage_dir,
        loop_check=not given.no_loop_check,
    )
    _notes(result.notes)
    _recreated(result, given)
    if given.dry_run:
        told = {"start": result.started, "stop, since an exclude matches now,": result.stopped}
        kept = {"already mirroring": result.already, "not at the source": result.pending, "excluded": result.excluded}
        return dry_run.told(told, kept, result.failed)
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
    if active and not result.live_workers:
        note(_NOBODY.format(verb="start"))
    if result.pending:
        note(f"Not found at the source: {names(result.pending, most=SHOWN)}")
    return FAILURE if result.failed else SUCCESS


def _recreated(result: "StartMirrorTopicsResult", given: argparse.Namespace) -> None:
    """Say where the tail of each topic is that was deleted, also of one that then could not be started."""
    for topic, one in result.recreated.items():
        tails = "; ".join(map(str, one.tails))
        if given.dry_run:
            print(f"Would save {tails} in {one.path}, delete topic {topic} at the destination and create it anew")
        else:
            print(f"Saved {tails} in {one.path}, and deleted topic {topic} at the destination")


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

    topics = mirrors_parser.entries(given.topics)
    result = await admin.stop_mirror_topics(given.mirror, topics, check_lag=given.check_lag, dry_run=given.dry_run)
    if given.dry_run:
        kept = {"already STOPPED": result.already, "level, since others are not": result.level}
        return dry_run.told({"stop": result.stopped, "give": result.acls}, kept, result.failed)
    if result.level:
        note(f"Level, and not stopped, since others are not: {names(result.level, most=SHOWN)}")
    done = {*result.stopped, *result.already}
    if result.failed:
        _failures("stop", result.failed, any_done=bool(done or result.level))
    if result.failed and not done:
        return FAILURE
    if given.remove:
        print(f"Removed {len(done)} topic(s) from mirror {result.mirror}: {names(done)}")
    else:
        print(f"Stopped mirroring for topics {names(done)} in mirror {result.mirror}")
    _ends(result)
    if result.waiting_for:
        note(_unfinished("stop", "STOPPED", result, given.timeout))
    if result.acls:
        note(f"Gave {len(result.acls)} ACL(s) that were held back: {names(result.acls, most=SHOWN)}")
    for one in result.notes:
        note(one)
    return FAILURE if result.failed else SUCCESS


def _unfinished(
    verb: str, there: str, result: "StopMirrorTopicsResult | MoveMirrorTopicsResult", timeout_s: float
) -> str:
    """What is missing of a command that is recorded and that only workers can complete."""
    count = len(result.waiting_for)
    more = ", ..." if count > SHOWN else ""
    shown = ", ".join(map(str, result.waiting_for[:SHOWN])) + more
    if not result.live_workers:
        return (
            f"Warning: no worker is running, so the {verb} is only recorded: {count} partition(s) are not {there} yet: "
            f"{shown}. Start a worker (twinlog worker) to finish it; nothing is mirrored meanwhile."
        )
    return (
        f"Warning: the {verb} is recorded, but {count} partition(s) were not {there} after {timeout_s:g} s: {shown}. "
        f"Do not write to them before --describe shows {there}."
    )


def _ends(result: "StopMirrorTopicsResult") -> None:
    """Where the mirrored records end: what a failover needs to know."""
    for tp, end in result.ends.items():
        lag = result.lags.get(tp, 0)
        behind = f", {lag} offset(s) behind the source when it was last seen" if lag else ""
        if end > 0:
            print(f"{tp}: last mirrored offset {end - 1}, log end {end}{behind}")
        elif end == 0:
            print(f"{tp}: nothing mirrored, log end 0{behind}")


async def _pause(admin: "MirrorAdmin", given: argparse.Namespace) -> int:
    topics = mirrors_parser.entries(given.topics)
    result = await admin.pause_mirror_topics(given.mirror, topics, dry_run=given.dry_run)
    code = _moved("pause", "Paused mirroring", "already PAUSED", result, given)
    if result.waiting_for:
        note(_unfinished("pause", "PAUSED", result, given.timeout))
    return code


async def _resume(admin: "MirrorAdmin", given: argparse.Namespace) -> int:
    topics = mirrors_parser.entries(given.topics)
    result = await admin.resume_mirror_topics(given.mirror, topics, dry_run=given.dry_run)
    return _moved("resume", "Resumed mirroring", "not PAUSED", result, given) or _unattended("resume", result, given)


async def _recover(admin: "MirrorAdmin", given: argparse.Namespace) -> int:
    topics = mirrors_parser.entries(given.topics)
    result = await admin.recover_mirror_topics(given.mirror, topics, dry_run=given.dry_run)
    code = _moved("recover", "Recovering", "without a FAILED partition", result, given)
    return code or _unattended("recover", result, given)


def _unattended(verb: str, result: "MoveMirrorTopicsResult", given: argparse.Namespace) -> int:
    """Say that nobody is there to do it; it is recorded all the same."""
    if result.moved and not result.live_workers and not given.dry_run:
        note(_NOBODY.format(verb=verb))
    return SUCCESS


def _moved(verb: str, done: str, already: str, result: "MoveMirrorTopicsResult", given: argparse.Namespace) -> int:
    from twinlog.cli.render import names  # noqa: PLC0415  # see the package

    if given.dry_run:
        return dry_run.told({verb: result.moved}, {already: result.already}, result.failed)
    if result.failed:
        _failures(verb, result.failed, any_done=bool(result.moved or result.already))
    if result.already:
        note(f"Left as they are, {already}: {names(result.already, most=SHOWN)}")
    print(f"{done} for {len(result.moved)} topic(s) in mirror {result.mirror}: {names(result.moved)}")
    return FAILURE if result.failed else SUCCESS


async def _alter(admin: "MirrorAdmin", given: argparse.Namespace) -> int:
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
        return dry_run.told({"change": result.changed}, {}, {})
    print(f"Altered mirror {result.mirror}")
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


def _failures(verb: str, failed: Mapping[str, TwinlogError], *, any_done: bool) -> None:
    if len(failed) == 1 and not any_done:
        raise next(iter(failed.values()))
    for topic, error in failed.items():
        print(f"Failed to {verb} topic {topic}: {error}", file=sys.stderr)


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
    if given.skipped:
        skipped = await admin.skipped(mirrors)
        print(render.skipped_json(skipped) if given.json else render.skipped_text(skipped))
        return SUCCESS
    result = await admin.describe_mirrors(mirrors, failed=given.failed, source_cluster_id=given.source_cluster_id)
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
    "pause": _pause,
    "resume": _resume,
    "recover": _recover,
    "alter": _alter,
    "delete": _delete,
    "list": _list,
    "describe": _describe,
}
