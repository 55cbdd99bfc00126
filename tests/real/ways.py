"""One direction between two clusters as an operator sees it, and both comparisons of its topics."""

import asyncio
import time
from dataclasses import dataclass

from tests.real.commanding import Commands, on, rows
from tests.real.mirrored_logs import numbered, write, write_transaction

from twinlog.config.client import ClientSettings
from twinlog.names import TopicPartition
from twinlog.testing.checker import assert_identical
from twinlog.testing.kafka import LocalKafka
from twinlog.verify.report import Outcome
from twinlog.verify.run import Question, verify
from twinlog.wire.ops import LATEST, list_offsets

RECORDS = numbered(50, timestamp_ms=1_700_000_000_000)
LEVEL_S = 25.0
FAILOVER_S = 5.0
COMPACTED = "compact-"


@dataclass(frozen=True)
class Way:
    """One direction: the commands of its destination, and the mirror there."""

    commands: Commands
    mirror: str

    def start(self, topic: str) -> None:
        """Start the topic, and wait until both logs are level."""
        self.commands.done("--start", "--topics", topic, "--mirror", self.mirror)
        self.wait_level(topic)

    def stop(self, topic: str) -> str:
        """Stop the topic, within the time that a failover may take; returns what was printed."""
        began = time.monotonic()
        said = self.commands.done("--stop", "--topics", topic, "--mirror", self.mirror)
        assert time.monotonic() - began < FAILOVER_S
        return said

    def refused(self, topic: str) -> str:
        """Start the topic, which must be refused; returns what was said."""
        return self.commands.failure("--start", "--topics", topic, "--mirror", self.mirror)

    def wait_level(self, topic: str) -> None:
        """Wait until the partition is MIRRORING and both logs end alike, twice in a row."""
        deadline, before = time.monotonic() + LEVEL_S, False
        while True:
            shown = rows(self.commands.done("--describe", "--mirror", self.mirror))
            there, here = end(self.commands.source, topic), end(self.commands.destination, topic)
            level = there == here and bool(shown) and all(row[-1] == "MIRRORING" for row in shown)
            if level and before:
                return
            before = level
            assert time.monotonic() < deadline, (shown, there, here)
            time.sleep(0.3)


def end(kafka: LocalKafka, topic: str) -> int:
    """The high watermark of partition 0."""
    where = TopicPartition(topic, 0)
    return int(on(kafka, lambda cluster: list_offsets(cluster, {where: LATEST}))[where].offset)


def assert_verified(one: LocalKafka, other: LocalKafka, topic: str) -> None:
    """Both comparisons, which share no code, find nothing; only the mirror's own knows of compaction."""
    if not topic.startswith(COMPACTED):
        assert_identical(one, other, topic)
    sides = [ClientSettings.from_properties({}, bootstrap=kafka.bootstrap, origin="test") for kafka in (one, other)]
    assert asyncio.run(verify(Question(sides[0], sides[1], topic))).outcome is Outcome.IDENTICAL


def mixed(kafka: LocalKafka, topic: str) -> None:
    """Plain, committed and aborted records."""
    write(kafka, topic, RECORDS)
    write_transaction(kafka, topic, RECORDS)
    write_transaction(kafka, topic, RECORDS, commit=False)
    write_transaction(kafka, topic, RECORDS[:5])
