"""Mirrors the same data with twinlog and with MirrorMaker 2, on the same two clusters, in one run.

python -m bench [--loads standard,...] [--only twinlog,...] [--all] [--json FILE] [--picture FILE]
"""

import argparse
import os
import platform
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import psutil
import uvloop
from bench.contest import CONTESTANTS, compete
from bench.loads import LOADS, STANDARD
from bench.picture import picture
from bench.stage import Stage, staged
from bench.targets import Target, targets

from bench import blanks, idle, mm2, reo_report, reo_run, report, workers
from twinlog.testing.kafka import LocalKafka

PARTS: Final = {"blanks": 1, "idle": 1, "workers": 1, "reo": 1, "blanks-rf3": 3}
"""Measurements beside the loads, by how many brokers the destination has."""
EVERYTHING: Final = (*LOADS, *PARTS)
ROUNDS: Final = 3
RESULTS: Final = Path("build")


async def main(options: argparse.Namespace) -> dict[str, Any]:
    """Run what was asked for; returns the figures."""
    figures: dict[str, Any] = {"machine": _machine(), "loads": {}, "blanks": {}, "seconds": {}}
    if {"default", "tuned"} & set(options.only) or "reo" in options.loads:
        mm2.class_path(LocalKafka().release.version)  # fetched before anything is timed
    for brokers in (1, 3):
        here = [name for name in options.loads if (LOADS[name].brokers if name in LOADS else PARTS[name]) == brokers]
        if here:
            async with staged(brokers) as stage:
                await _on_stage(stage, here, figures, options)
    return figures


async def _on_stage(stage: Stage, names: list[str], figures: dict[str, Any], options: argparse.Namespace) -> None:
    for name in names:
        began = time.perf_counter()
        if name in LOADS:
            load = LOADS[name]
            load = replace(load, megabytes=min(options.mb, load.megabytes) if options.mb else load.megabytes)
            figures["loads"][name] = await compete(stage, load, options)
        else:
            print(f"{name}:", flush=True)
            await MEASURES[name](stage, figures, options)
        took_s = time.perf_counter() - began
        print(f"  {name} took {took_s:.0f} s", flush=True)
        figures["seconds"][name] = took_s
        kept(figures, options)


async def _blanks(stage: Stage, figures: dict[str, Any], _: argparse.Namespace) -> None:
    figures["blanks"]["blanks" if stage.brokers == 1 else "blanks-rf3"] = await blanks.all_kinds(stage)


async def _idle(stage: Stage, figures: dict[str, Any], _: argparse.Namespace) -> None:
    figures["idle"] = {name: asdict(found) for name, found in (await idle.measure(stage)).items()}


async def _workers(stage: Stage, figures: dict[str, Any], _: argparse.Namespace) -> None:
    figures["workers"] = await workers.measure(stage)


async def _reo(stage: Stage, figures: dict[str, Any], options: argparse.Namespace) -> None:
    figures["reo"] = await reo_run.measure(
        stage, rounds=options.repeat, latency_seconds=options.latency_seconds, megabytes=options.mb
    )


MEASURES: Final[dict[str, Callable[[Stage, dict[str, Any], argparse.Namespace], Awaitable[None]]]] = {
    "blanks": _blanks,
    "blanks-rf3": _blanks,
    "idle": _idle,
    "workers": _workers,
    "reo": _reo,
}


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "python": platform.python_version(),
        "kafka": LocalKafka().release.version,
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="twinlog beside MirrorMaker 2.")
    known = ",".join(EVERYTHING)
    parser.add_argument("--loads", default=STANDARD.name, help=f"loads and measurements, of {known}")
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--only", default=",".join(CONTESTANTS), help=f"who takes part, of {','.join(CONTESTANTS)}")
    parser.add_argument("--repeat", type=int, default=ROUNDS, help="rounds a load")
    parser.add_argument("--mb", type=int, default=0, help="loads of at most so many 10^6 bytes")
    parser.add_argument("--latency-seconds", type=float, default=10.0)
    parser.add_argument("--latency-loads", default=STANDARD.name, help="loads whose latency is measured, too")
    parser.add_argument(
        "--json",
        type=Path,
        default=RESULTS / "bench.json",
        help="where to write the figures, over older ones of the same",
    )
    parser.add_argument("--picture", type=Path, default=RESULTS / "bench.svg", help="where to draw the comparison")
    options = parser.parse_args()
    options.loads = list(EVERYTHING) if options.all else options.loads.split(",")
    options.only, options.latency_loads = options.only.split(","), options.latency_loads.split(",")
    for given, names, option in (
        (options.loads, EVERYTHING, "--loads"),
        (options.only, CONTESTANTS, "--only"),
        (options.latency_loads, tuple(LOADS), "--latency-loads"),
    ):
        if unknown := set(given) - set(names):
            parser.error(f"{option} knows {', '.join(names)}, not {', '.join(sorted(unknown))}")
    return options


def kept(figures: dict[str, Any], options: argparse.Namespace) -> list[Target]:
    """Write figures and picture, after each load, so that an interrupted run is not lost; returns the targets."""
    whole = report.merged(figures, options.json)
    judged = [*targets(whole), *reo_report.targets(whole)]
    whole = {**whole, "targets": [target.figures() for target in judged]}
    report.written(whole, options.json)
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    options.picture.write_text(picture(whole), "utf-8")
    return judged


def tell(figures: dict[str, Any], options: argparse.Namespace) -> None:
    """Print tables and targets."""
    for load in figures["loads"].values():
        print("\n" + report.table(load))
    if "reo" in figures:
        print("\n" + reo_report.table(figures["reo"]))
    print()
    for target in kept(figures, options):
        print(target)
    print(f"\nAll figures: {options.json}; picture: {options.picture}")


if __name__ == "__main__":
    arguments = _arguments()
    tell(uvloop.run(main(arguments)), arguments)
