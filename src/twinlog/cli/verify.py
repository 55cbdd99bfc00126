"""`twinlog verify`: compares a topic on two clusters offset by offset."""

import argparse
import asyncio
import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from twinlog.admin.starts import chosen_starts
from twinlog.cli.common import TIMEOUT_S, first_offsets, seconds, settings_of
from twinlog.errors import TwinlogError
from twinlog.verify.partition import Meter
from twinlog.verify.report import Outcome, Report, as_json, as_text, refused_json
from twinlog.verify.run import Question, verify
from twinlog.wire.cluster import Cluster

DESCRIPTION: Final = """\
Compares every partition of a topic on two clusters, as a read_committed consumer sees it: offset, key, value, headers,
timestamp, where the log starts and where it ends. The comparison runs up to the ends seen at its beginning.

A destination that lags is reported as different, by its lag; what it lacks is not counted record by record. Undecided
records at the source's end are not compared. Nor is what lies before the offset that the mirror was told to begin with
(--start-at), which the destination's state tells, or --from. On a topic with cleanup.policy=compact, a record on one
side only is `compacted`, and no difference, when the side that lacks it has a later record of the same key, or when
the key's last record on both sides is a tombstone or absent.
"""

EPILOG: Final = """\
exit code: 0 identical, 1 different, 2 could not be compared (in whole or in part); also 2 where a log begins later at
the destination, nothing else differs, and the mirror's state, which says whether that was chosen, could not be read

--json prints one object: identical (true, false, null when unknown), topic, sampled, seconds, mb_per_s (source bytes),
differences, warnings, notes, error, and partitions: identical, partition, start and end (the offsets compared, end
excluded), source and destination (start, end = high watermark, stable = last stable offset), records, bytes, lag,
undecided, lost, extra, changed, shifted, compacted, chosen_start, start_in_doubt, differences (kind, offset, text; at
most 10 records), notes, error.
"""

TICK_S: Final = 0.2
LINE_S: Final = 5.0
"""Between two lines of progress where no terminal shows a bar."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the subcommand; `args.run` is what runs it."""
    parser = subparsers.add_parser(
        "verify",
        help="compare a topic on two clusters offset by offset",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--source", required=True, metavar="HOST:PORT,...", help="brokers of the source")
    add("--destination", required=True, metavar="HOST:PORT,...", help="brokers of the destination")
    add("--topic", required=True, help="the topic, by its name on both clusters")
    add("--source-config", metavar="FILE", help="client properties for the source")
    add("--destination-config", metavar="FILE", help="client properties for the destination")
    add("--partitions", metavar="0,3,...", type=partition_numbers, help="compare only these partitions")
    add(
        "--from",
        dest="starts",
        metavar="P:OFFSET,...",
        type=first_offsets,
        help="the offsets that the mirror was told to begin with, by partition (default: as its state says)",
    )
    add("--sample", metavar="N", type=window_count, help="compare N windows a partition, and its first and last")
    add(
        "--timeout", metavar="S", type=seconds, default=TIMEOUT_S, help="how long a cluster may be silent (default: 30)"
    )
    add("--json", action="store_true", help="print one JSON object, and no progress")
    add("--verbose", action="store_true", help="name identical partitions too, and log what happens")
    parser.set_defaults(run=run)


def partition_numbers(text: str) -> frozenset[int]:
    """Parse `0,3`. Raises ArgumentTypeError."""
    try:
        numbers = frozenset(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of partition numbers like 0,3") from None
    if min(numbers) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} holds a negative partition number")
    return numbers


def window_count(text: str) -> int:
    """Parse a number of windows, 0 or more. Raises ArgumentTypeError."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of windows")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Compare, print what was found on stdout, and return the exit code."""
    logging.basicConfig(level=logging.INFO if args.verbose else logging.ERROR, stream=sys.stderr)
    try:
        report = _compared(_question(args), quiet=args.json)
    except TwinlogError as error:
        if args.json:
            print(json.dumps(refused_json(args.topic, str(error)), indent=2))
        else:
            print(f"{args.topic} could not be compared: {error}", file=sys.stderr)
        return Outcome.NOT_COMPARED
    print(json.dumps(as_json(report), indent=2) if args.json else as_text(report, verbose=args.verbose))
    return report.outcome


def _question(args: argparse.Namespace) -> Question:
    return Question(
        settings_of(args.source, args.source_config, option="--source"),
        settings_of(args.destination, args.destination_config, option="--destination"),
        args.topic,
        partitions=args.partitions,
        sample=args.sample,
        timeout_s=args.timeout,
        starts=chosen_starts if args.starts is None else partial(_given, args.starts),
    )


async def _given(starts: Mapping[int, int], _source: Cluster, _destination: Cluster, _topic: str) -> Mapping[int, int]:
    return starts


def _compared(question: Question, *, quiet: bool) -> Report:
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_watched(question, quiet=quiet))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415  # does not install everywhere; the standard loop serves elsewhere
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _watched(question: Question, *, quiet: bool) -> Report:
    if quiet:
        return await verify(question)
    meter = Meter()
    console = Console(stderr=True)
    show = _bar if console.is_terminal else _plain
    display = asyncio.create_task(show(meter, console))
    try:
        return await verify(question, meter)
    finally:
        display.cancel()
        await asyncio.gather(display, return_exceptions=True)


async def _bar(meter: Meter, console: Console) -> None:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[speed]:.0f} MB/s"),
        TimeRemainingColumn(),
    )
    began = time.monotonic()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(meter.doing, total=None, speed=0.0)
        while True:
            await asyncio.sleep(TICK_S)
            progress.update(
                task,
                description=meter.doing,
                total=meter.offsets or None,
                completed=meter.offsets_done,
                speed=_speed(meter, began),
            )


async def _plain(meter: Meter, console: Console) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(LINE_S)
        share = meter.offsets_done / meter.offsets if meter.offsets else 0.0
        line = f"{meter.doing}: {share:.0%}, {meter.bytes / 1e6:,.0f} MB, {_speed(meter, began):.0f} MB/s"
        print(line, file=console.file, flush=True)


def _speed(meter: Meter, began: float) -> float:
    return meter.bytes / 1e6 / max(0.001, time.monotonic() - began)
