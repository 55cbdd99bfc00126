"""`twinlog salvage`: saves a diverged tail as a file, shows such a file, or produces it into a topic."""

import argparse
import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from twinlog.admin.salvage import Kind, Saved, describe, records, save_from
from twinlog.cli.common import TIMEOUT_S, UsageError, first_offsets, seconds, settings_of
from twinlog.config.client import ClientSettings
from twinlog.errors import TwinlogError, Unreachable
from twinlog.service.membership import librdkafka_config
from twinlog.wire.cluster import Cluster

CLIENT_ID: Final = "twinlog-salvage"
MOST_BYTES: Final = 1_000_000_000
"""The library's greatest limit for a record."""

Delivered = Callable[["KafkaError | None", "Message[bytes, bytes]"], None]

DESCRIPTION: Final = """\
Keeps the diverged tail of a topic as a file. --save writes the file, under a new name, and prints its path: it is on
disk, with all batches as the log holds them, before the command ends; save before the topic is deleted. --list shows
where a file comes from and what it holds. --produce writes its committed records into a topic, in their order, to the
partitions that they were in, with key, value, headers and timestamp. The last two read the whole file first, so that a
damaged one is refused before anything is written.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the subcommand; `args.run` is what runs it."""
    text = "save, show or produce the diverged tail of a topic"
    parser = subparsers.add_parser("salvage", help=text, description=DESCRIPTION)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--save", metavar="FOLDER", type=Path, help="save a tail, up to the present end, in this folder")
    what.add_argument("--list", metavar="FILE", type=Path, help="show what the file holds")
    what.add_argument("--produce", metavar="FILE", type=Path, help="write its records into a topic")
    add = parser.add_argument
    add("--bootstrap-server", metavar="HOST:PORT", help="the cluster of the topic; :9094 means localhost")
    add("--topic", help="the topic to save, or to write to")
    add("--from", dest="firsts", metavar="P:OFFSET,...", type=first_offsets, help="save: the first offset by partition")
    add("--command-config", metavar="FILE", help="client properties for the cluster")
    add("--aborted", action="store_true", help="write the records of aborted and undecided transactions, too")
    add("--timeout", metavar="S", type=seconds, default=TIMEOUT_S, help="how long the cluster may take (default: 30)")
    add("--verbose", action="store_true", help="show where an error came from")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Save, list or produce; returns the exit code."""
    if args.save:
        if not (args.bootstrap_server and args.topic and args.firsts):
            raise UsageError("--save needs --bootstrap-server, --topic and --from")
        settings = settings_of(args.bootstrap_server, args.command_config)
        path = asyncio.run(_saved(settings, args))
        return _list(path)
    if args.list:
        return _list(args.list)
    if not args.bootstrap_server or not args.topic:
        raise UsageError("--produce needs --bootstrap-server and --topic")
    return _produce(args)


async def _saved(settings: ClientSettings, args: argparse.Namespace) -> Path:
    cluster = await Cluster.connect(settings, client_id=CLIENT_ID, timeout_s=args.timeout)
    try:
        return await save_from(cluster, args.topic, args.firsts, args.save)
    finally:
        await cluster.close()


def _list(path: Path) -> int:
    head = describe(path)
    counts = Counter((saved.partition, saved.kind) for saved in records(path))
    print(f"{path}: topic {head.topic} (id {head.topic_id}) of cluster {head.cluster_id}")
    for partition, (first, end) in sorted(head.ranges.items()):
        committed, aborted, open_ = (counts[partition, k] for k in (Kind.COMMITTED, Kind.ABORTED, Kind.UNDECIDED))
        told = f"{committed} committed, {aborted} aborted, {open_} undecided records"
        print(f"{head.topic}-{partition} offsets {first} to {end - 1}: {told}")
    return 0


def _produce(args: argparse.Namespace) -> int:
    for _ in records(args.produce):
        pass  # proves that the file is whole
    settings = settings_of(args.bootstrap_server, args.command_config)
    producer = Producer(
        {
            **librdkafka_config(settings),
            "enable.idempotence": True,
            "message.timeout.ms": int(args.timeout * 1000),
            "allow.auto.create.topics": False,
            # The topic's own limit decides: what one cluster took another one may take, too.
            "message.max.bytes": MOST_BYTES,
        }
    )
    _check_topic(producer, args.topic, args.timeout)
    wanted = set(Kind) if args.aborted else {Kind.COMMITTED}
    written = _produced(producer, args.topic, args.produce, wanted, args.timeout)
    print(f"Produced {written} records into topic {args.topic}")
    return 0


def _check_topic(producer: Producer, topic: str, timeout_s: float) -> None:
    """Before anything is written: later it could not be told how much of it was."""
    try:
        found = producer.list_topics(topic, timeout_s).topics[topic].error
    except KafkaException as problem:
        raise Unreachable(f"Topic '{topic}' could not be looked at: {problem}. Nothing was written.") from problem
    if found is not None:
        raise TwinlogError(f"Nothing was written into topic '{topic}': {found.str()}. Create it, or see to its rights.")


def _produced(producer: Producer, topic: str, path: Path, wanted: set[Kind], timeout_s: float) -> int:
    failures: list[str] = []
    written = 0

    def told(error: KafkaError | None, message: "Message[bytes, bytes]") -> None:
        if error is not None:
            failures.append(f"partition {message.partition()}: {error}")

    for saved in records(path):
        if saved.kind in wanted and not failures:
            _send(producer, topic, saved, told)
            written += 1
    left = producer.flush(timeout_s)
    if failures or left:
        why = failures[0] if failures else f"no answer for {left} records within {timeout_s:g} s"
        raise Unreachable(
            f"Not all of {path} was written into topic '{topic}': {why}. Look at what is there before it is produced "
            f"once more: records that were written would be there twice."
        )
    return written


def _send(producer: Producer, topic: str, saved: Saved, told: Delivered) -> None:
    record = saved.record
    headers: list[tuple[str, str | bytes | None]] = [(name.decode(), value) for name, value in record.headers]
    while True:
        try:
            producer.produce(
                topic,
                record.value,
                record.key,
                saved.partition,
                on_delivery=told,
                # The library takes 0 and less for "now".
                timestamp=max(record.timestamp, 1),
                headers=headers,
            )
        except BufferError:
            producer.poll(0.1)
        except KafkaException as problem:
            raise TwinlogError(f"A record for topic '{topic}' was refused: {problem}") from problem
        else:
            producer.poll(0)
            return
