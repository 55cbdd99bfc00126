"""What `kafka-mirrors` prints of topics that it has started, stopped or moved.

The first line is KIP-1279's, and counts what was done now; what was so already, and what became of patterns, has lines
of its own. Remarks go to stderr.
"""

import argparse
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from twinlog.cli import dry_run
from twinlog.cli.common import FAILURE, SUCCESS, note
from twinlog.cli.render import names
from twinlog.errors import TwinlogError

if TYPE_CHECKING:
    from twinlog.admin import MoveMirrorTopicsResult, StartMirrorTopicsResult, StopMirrorTopicsResult

SHOWN = 10
"""Topics, partitions or patterns that a remark names at most."""

_NOBODY = (
    "Warning: no worker is running, so the {verb} is only recorded. Start a worker (twinlog worker) to have it done."
)


class Move(NamedTuple):
    """The words of an action that moves topics: to do, done, and why one is left as it is."""

    verb: str
    done: str
    already: str


PAUSE = Move("pause", "Paused mirroring", "already PAUSED")
RESUME = Move("resume", "Resumed mirroring", "not PAUSED")
RECOVER = Move("recover", "Recovering", "without a FAILED partition")


def start(result: "StartMirrorTopicsResult", given: argparse.Namespace) -> int:
    """Tell a start; returns the exit code."""
    for one in result.notes:
        note(f"Note: {one}")
    _recreated(result, given)
    if given.dry_run:
        told = {"start": result.started, "stop (an exclude matches now)": result.stopped}
        kept = {"already mirroring": result.already, "not at the source": result.pending, "excluded": result.excluded}
        return dry_run.told(told | dry_run.patterns(result.edits), kept, result.failed)
    if result.stopped:
        note(f"Stopped, since an exclude matches now: {_some(result.stopped)}")
    _left_out(result)
    if result.failed:
        failures("start", result.failed, any_done=bool(result.started or result.already))
    _started(result, given)
    return FAILURE if result.failed else SUCCESS


def _started(result: "StartMirrorTopicsResult", given: argparse.Namespace) -> None:
    count, mirror = len(result.started), result.mirror
    if result.started and given.add:
        print(f"Added {count} topic(s) to mirror {mirror}: {names(result.started)}")
    elif result.started:
        print(f"Started {count} mirror topic(s) in mirror {mirror}: {names(result.started)}")
    if result.already:
        print(f"Already mirroring in mirror {mirror}: {names(result.already)}")
    if not (result.started or result.already or result.failed):
        print(f"No matching topics found yet. Patterns saved to mirror {mirror} for auto-discovery.")
    if result.started and not result.live_workers:
        note(_NOBODY.format(verb="start"))
    elif result.already and not result.live_workers:
        note("Warning: no worker is running, so nothing is mirrored now. Start a worker (twinlog worker).")


def _left_out(result: "StartMirrorTopicsResult") -> None:
    excluded = set(result.excluded) - set(result.stopped)
    if excluded:
        note(f"Left out, since an exclude pattern of mirror {result.mirror} matches: {_some(excluded)}")
    if result.unmatched:
        note(
            f"Nothing at the source matches yet: {_some(result.unmatched)}. Mirror {result.mirror} keeps that, and "
            f"starts what appears. If it is a mistake: --stop --mirror {result.mirror} --topics "
            f"{_as_word(result.unmatched)}"
        )


def _recreated(result: "StartMirrorTopicsResult", given: argparse.Namespace) -> None:
    """Say where the tail of each topic is that was deleted, also of one that then could not be started."""
    for topic, one in result.recreated.items():
        tails = "; ".join(map(str, one.tails))
        if given.dry_run:
            print(f"Would save {tails} in {one.path}, delete topic {topic} at the destination and create it anew")
        else:
            print(f"Saved {tails} in {one.path}, and deleted topic {topic} at the destination")


def stop(result: "StopMirrorTopicsResult", topics: Sequence[str], given: argparse.Namespace) -> int:
    """Tell a stop of these names and regexes; returns the exit code."""
    if given.dry_run:
        kept = {"already STOPPED": result.already, "level, since others are not": result.level}
        done = {"stop": result.stopped, "give": result.acls, **dry_run.patterns(result.edits)}
        return dry_run.told(done, kept, result.failed)
    if result.level:
        note(f"Level, and not stopped, since others are not: {_some(result.level)}")
    if result.failed:
        any_done = bool(result.stopped or result.already or result.level or result.edits)
        failures("stop", result.failed, any_done=any_done, done=(*result.stopped, *result.already))
    _stopped(result, topics, given)
    _ends(result)
    if result.waiting_for:
        note(_unfinished("stop", "STOPPED", result, given.timeout))
    if result.acls:
        note(f"Gave {len(result.acls)} ACL(s) that were held back: {_some(result.acls)}")
    for one in result.notes:
        note(one)
    return FAILURE if result.failed else SUCCESS


def _stopped(result: "StopMirrorTopicsResult", topics: Sequence[str], given: argparse.Namespace) -> None:
    if result.stopped and given.remove:
        print(f"Removed {len(result.stopped)} topic(s) from mirror {result.mirror}: {names(result.stopped)}")
    elif result.stopped:
        print(f"Stopped mirroring for topics {names(result.stopped)} in mirror {result.mirror}")
    late = {tp.topic for tp in result.waiting_for}.intersection(result.already)
    if late:
        print(f"Told to stop before, and not STOPPED yet, in mirror {result.mirror}: {names(late)}")
    if set(result.already) - late:
        print(f"Already stopped in mirror {result.mirror}: {names(set(result.already) - late)}")
    told = _edited(result)
    if result.stopped or result.already:
        for sentence in told:
            note(sentence)
    elif told:
        print("\n".join(told))
    elif not (result.failed or result.level):
        print(f"Nothing to stop in mirror {result.mirror}: none of its topics matches {_some(topics)}")


def _edited(result: "StopMirrorTopicsResult") -> list[str]:
    """What became of patterns, but for the names of stopped topics: that these are not found anew is clear."""
    topics = {*result.stopped, *result.already}
    forgotten = [entry for entry in result.edits.taken_back_include if entry not in topics]
    saved = [entry for entry in result.edits.saved_exclude if entry not in topics]
    told = []
    if forgotten:
        told.append(f"Taken back from the include patterns of mirror {result.mirror}: {_some(forgotten)}")
    if saved:
        told.append(
            f"Saved as exclude pattern(s) of mirror {result.mirror}, so that no topic that matches is started: "
            f"{_some(saved)}. Take them out of mirror.topics.exclude (--alter) before you start such a topic by name."
        )
    return told


def moved(move: Move, result: "MoveMirrorTopicsResult", topics: Sequence[str], given: argparse.Namespace) -> int:
    """Tell a pause, resume or recovery of these names and regexes; returns the exit code."""
    if given.dry_run:
        return dry_run.told({move.verb: result.moved}, {move.already: result.already}, result.failed)
    if result.failed:
        failures(move.verb, result.failed, any_done=bool(result.moved or result.already))
    if result.moved:
        print(f"{move.done} for {len(result.moved)} topic(s) in mirror {result.mirror}: {names(result.moved)}")
    if result.already:
        print(f"Left as they are, {move.already}: {names(result.already)}")
    if not (result.moved or result.already or result.failed):
        print(f"Nothing to {move.verb} in mirror {result.mirror}: none of its topics matches {_some(topics)}")
    if result.waiting_for:
        note(_unfinished(move.verb, "PAUSED", result, given.timeout))
    elif result.moved and not result.live_workers:
        note(_NOBODY.format(verb=move.verb))
    return FAILURE if result.failed else SUCCESS


def failures(verb: str, failed: Mapping[str, TwinlogError], *, any_done: bool, done: Collection[str] = ()) -> None:
    """Tell what failed topic by topic; the only topic's failure is the command's, and raised.

    With a topic of those `done` something else is wrong than that the command was not carried out.
    """
    if len(failed) == 1 and not any_done:
        raise next(iter(failed.values()))
    for topic, error in failed.items():
        print(str(error) if topic in done else f"Failed to {verb} topic {topic}: {error}", file=sys.stderr)


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


def _some(topics: Collection[str]) -> str:
    return names(topics, most=SHOWN)


def _as_word(patterns: Sequence[str]) -> str:
    """Patterns as one word of a command line."""
    shown = patterns[:SHOWN]
    return shlex.quote(",".join(shown)) + (" and so on" if len(shown) < len(patterns) else "")
