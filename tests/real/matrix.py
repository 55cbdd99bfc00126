"""All kinds of content through one mirror at once, for any pair of clusters.

    with Mirror(source, destination) as mirror:
        run_matrix(mirror, "prefix")

Each kind has a topic of its own, some of it written before the mirror starts and some while it runs; at the end the
independent checker compares them all. What the brokers of an old source cannot hold (zstd before 2.1) is left out.
"""

import random
import time
from collections.abc import Iterable
from typing import Final

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from tests.real.commanding import Commands, produce
from tests.real.mirrored_logs import compressed, delete_records, numbered, offsets_for_times, stored, visible, write
from tests.real.mirrored_logs import write_transaction as transaction
from tests.real.mirroring import Mirror

from twinlog.cli import twinlog
from twinlog.relay.longrun import LONG_RUN
from twinlog.testing.checker import assert_identical
from twinlog.testing.data import EVERYTHING_ALLOWED, Made
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.load import CODECS, Load
from twinlog.testing.reader import Bounds, TopicReader

FIRST_WITH_ZSTD: Final = (2, 1)
FIRST_WITH_DYNAMIC_BROKER_CONFIGS: Final = (2, 3)
EAGER_CLEANER: Final = {"log.cleaner.backoff.ms": "100"}
"""Broker configs under which the cleaner looks every 0.1 s for something to clean, not every 15 s."""

WAIT_S: Final = 30.0
MONTH_MS: Final = 30 * 86_400_000
LEVEL_S: Final = 90.0


def codecs_of(kafka: LocalKafka) -> tuple[str, ...]:
    """The codecs that a cluster's brokers take."""
    return CODECS if kafka.release.numbers >= FIRST_WITH_ZSTD else tuple(one for one in CODECS if one != "zstd")


def make_cleaner_eager(kafka: LocalKafka) -> None:
    """Give EAGER_CLEANER to a running broker; one before 2.3 must be started with it."""
    if kafka.release.numbers < FIRST_WITH_DYNAMIC_BROKER_CONFIGS:
        return
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in EAGER_CLEANER.items()
    ]
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


class Content:
    """One kind of content in a topic of its own; subclasses write it, and may look closer than the checker does."""

    partitions = 1
    config: Final[dict[str, str]] = {}
    timestamp_types = True

    def __init__(self, mirror: Mirror, topic: str) -> None:
        self.mirror, self.topic = mirror, topic
        self.source = mirror.source
        mirror.create(topic, partitions=self.partitions, config=EVERYTHING_ALLOWED | self.config)

    def before(self) -> None:
        """Write what is there before the mirror starts."""

    def during(self) -> None:
        """Write what comes while it runs."""

    def check(self) -> int:
        """Compare, and return how many records there are."""
        report = assert_identical(
            self.source, self.mirror.destination, self.topic, timestamp_types=self.timestamp_types
        )
        return report.source_records


class Everything(Content):
    """Three partitions of all that the load makes: codecs, transactions, headers, edges, timestamps, large batches."""

    partitions = 3

    def __init__(self, mirror: Mirror, topic: str) -> None:
        super().__init__(mirror, topic)
        self._load = Load(self.source, topic, random.Random(1), codecs=codecs_of(self.source))

    def before(self) -> None:
        """Once all."""
        self._load.everything(50)

    def during(self) -> None:
        """All again."""
        self._load.everything(50)
        self._load.close()

    def check(self) -> int:
        """As many records as were acknowledged."""
        assert super().check() == self._load.acknowledged
        return self._load.acknowledged


class Producers(Content):
    """Plain, idempotent and transactional producers of each codec."""

    def before(self) -> None:
        """Each once."""
        for codec in codecs_of(self.source):
            write(self.source, self.topic, numbered(50), **{"compression.type": codec})
            write(self.source, self.topic, numbered(50), **{"compression.type": codec, "enable.idempotence": True})
            transaction(self.source, self.topic, numbered(50), codec=codec)

    def check(self) -> int:
        """The destination's compressed batches are the same bytes, in all codecs."""
        batches = compressed(stored(self.mirror, self.topic, at_source=True))
        assert compressed(stored(self.mirror, self.topic, at_source=False)) == batches
        assert len({batch.codec for batch in batches}) == len(codecs_of(self.source)) - 1
        return super().check()


class Aborted(Content):
    """Aborted transactions: short ones, and one that is long enough for a run of blanks of its own."""

    def before(self) -> None:
        """A long one between records."""
        write(self.source, self.topic, numbered(10))
        transaction(self.source, self.topic, numbered(LONG_RUN + 100, value_bytes=1), codec="gzip", commit=False)
        write(self.source, self.topic, numbered(10))

    def during(self) -> None:
        """Short ones, the last at the log's end."""
        for seed in range(5):
            transaction(self.source, self.topic, numbered(3, seed=seed), commit=seed % 2 == 0)
        transaction(self.source, self.topic, numbered(3), commit=False)


class Compacted(Content):
    """What the source's cleaner left: holes inside batches, between them, and tombstones."""

    config: Final = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0",
        "max.compaction.lag.ms": "100",
    }

    def before(self) -> None:
        """Write keys over and over, let the segment roll, and wait for the cleaner."""
        small = {"batch.num.messages": 100, "linger.ms": 20}
        write(self.source, self.topic, numbered(200, value_bytes=10), **small)
        write(self.source, self.topic, [Made(b"%d" % (n * n % 200), b"v", []) for n in range(2000)], **small)
        write(self.source, self.topic, [Made(b"%d" % n, None, []) for n in range(0, 20, 2)])
        self._roll()
        self._wait_cleaned(records=201)

    def during(self) -> None:
        """Some more that nobody has cleaned yet."""
        write(self.source, self.topic, [Made(b"new-%d" % n, b"v", []) for n in range(100)])

    def check(self) -> int:
        """There are holes, and the twin has what is left."""
        records = super().check()
        assert records < self.mirror.ends(self.topic, at_source=True)[0]
        return records

    def _roll(self) -> None:
        time.sleep(0.15)
        write(self.source, self.topic, [Made(b"roll", b"v", [])])

    def _wait_cleaned(self, records: int) -> None:
        self.mirror.wait_for(
            lambda: len(visible(self.source, self.topic)) == records,
            lambda: f"{records} records left by the cleaner, not {len(visible(self.source, self.topic))}",
            WAIT_S,
        )


class Begun(Content):
    """Logs whose beginning was deleted: before the mirror starts, the whole of a log, and while it runs."""

    partitions = 3

    def before(self) -> None:
        """The first 500 of 1000 in one partition, all 100 in another, none in the third."""
        write(self.source, self.topic, numbered(1000))
        write(self.source, self.topic, numbered(100), partition=1)
        write(self.source, self.topic, numbered(100), partition=2)
        delete_records(self.source, self.topic, {0: 500, 1: 100})

    def during(self) -> None:
        """More of both."""
        for partition in range(3):
            write(self.source, self.topic, numbered(50), partition=partition)
        delete_records(self.source, self.topic, {0: 600, 2: 30})

    def check(self) -> int:
        """The twin starts where the source does."""
        wanted = {0: Bounds(600, 1050, 1050), 1: Bounds(100, 150, 150), 2: Bounds(30, 150, 150)}
        assert self._bounds(self.source) == wanted
        self.mirror.wait_for(
            lambda: self._bounds(self.mirror.destination) == wanted,
            lambda: f"{wanted} at the destination, not {self._bounds(self.mirror.destination)}",
            WAIT_S,
        )
        return super().check()

    def _bounds(self, kafka: LocalKafka) -> dict[int, Bounds]:
        reader = TopicReader(kafka, self.topic)
        try:
            return reader.bounds()
        finally:
            reader.close()


class Stamped(Content):
    """LogAppendTime: the twin's records carry the source broker's time as their own."""

    config: Final = {"message.timestamp.type": "LogAppendTime"}
    timestamp_types = False

    def before(self) -> None:
        """Records that say that they are a month old."""
        old_ms = int(time.time() * 1000) - MONTH_MS
        for codec in codecs_of(self.source):
            write(self.source, self.topic, numbered(50, timestamp_ms=old_ms), **{"compression.type": codec})

    def during(self) -> None:
        """Transactions."""
        transaction(self.source, self.topic, numbered(20))
        transaction(self.source, self.topic, numbered(20), commit=False)


class Timed(Content):
    """Records of all ages: a search by time finds the same offset on both sides."""

    def __init__(self, mirror: Mirror, topic: str) -> None:
        super().__init__(mirror, topic)
        self._rng = random.Random(2)
        self._now_ms = int(time.time() * 1000)

    def before(self) -> None:
        """A month old, in many batches, and out of order."""
        rng, now_ms = self._rng, self._now_ms
        times = [rng.choice((1, now_ms - MONTH_MS, rng.randrange(1, now_ms))) for _ in range(500)]
        records = [Made(b"k", b"v", [], time_ms) for time_ms in times]
        write(self.source, self.topic, records, **{"batch.num.messages": 20})

    def check(self) -> int:
        """Each search has the same answer."""
        times = [0, 1, self._now_ms, *(self._rng.randrange(2 * self._now_ms) for _ in range(50))]
        there, here = (
            offsets_for_times(kafka, self.topic, 0, times) for kafka in (self.source, self.mirror.destination)
        )
        assert here == there
        return super().check()


KINDS: Final[tuple[type[Content], ...]] = (Everything, Producers, Aborted, Compacted, Begun, Stamped, Timed)


def run_matrix(mirror: Mirror, prefix: str, kinds: Iterable[type[Content]] = KINDS) -> dict[str, int]:
    """Mirror all kinds of content, and return how many records of each there are; raises what differs."""
    contents = [kind(mirror, f"{prefix}-{kind.__name__.lower()}") for kind in kinds]
    for content in contents:
        content.before()
    for content in contents:
        mirror.start(content.topic)
    for content in contents:
        mirror.wait_level(content.topic, timeout_s=LEVEL_S)
    for content in contents:
        content.during()
    for content in contents:
        mirror.wait_level(content.topic, timeout_s=LEVEL_S)
    return {type(content).__name__: content.check() for content in contents}


def mirror_by_commands(commands: Commands, mirror: Mirror, topic: str) -> str:
    """Create, start, mirror, stop and verify one topic by the programs alone; returns what `verify` printed.

    `mirror` only lends its worker, which serves every mirror of its destination. The twin is made by `--start`, after
    the configs of the source's topic.
    """
    commands.source.create_topic(topic, 2, config={"retention.ms": "86400000", "cleanup.policy": "compact,delete"})
    produce(commands.source, topic, 100)
    name = commands.mirror()
    commands.done("--start", "--mirror", name, "--topics", topic)
    mirror.wait_for(lambda: mirror.ends(topic) == {0: 100, 1: 0}, lambda: f"{mirror.ends(topic)}", WAIT_S)
    commands.done("--stop", "--mirror", name, "--topics", topic)
    commands.capsys.readouterr()
    sides = ("--source", commands.source.bootstrap, "--destination", commands.destination.bootstrap)
    code = twinlog.main(["verify", *sides, "--topic", topic])
    said = commands.capsys.readouterr()
    assert code == 0, said
    return said.out
