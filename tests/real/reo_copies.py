"""Copies as processes, records that say where they come from, and a reader of its own that counts each of them.

Shared by the tests and the long runs that kill, freeze and restart whatever takes part in a copy.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from twinlog.testing.kafka import LocalKafka
from twinlog.testing.watchdog import Watchdog

PARTITIONS: Final = 4
ARRIVES_WITHIN_S: Final = 60.0

WAYS: Final[dict[str, tuple[str, ...]]] = {
    "direct": ("",),
    "proxy": ("--mode proxy",),
    "apart": ("--mode proxy --stage 1", "--mode proxy --stage 2"),
}
"""What processes make up a copy: one, one for both stages, and one for each stage."""


@dataclass
class Copy:
    """One process that copies `topic` into `<topic>-twin`; its output goes to a file."""

    source: LocalKafka
    destination: LocalKafka
    topic: str
    log: Path
    flags: str = ""
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def words(self) -> list[str]:
        """The command line, which leaves out what `--status` would need beside it."""
        told = {
            "application-name": f"{self.topic}-copy",
            "source-bootstrap-server": self.source.bootstrap,
            "source-topic": self.topic,
            "destination-bootstrap-server": self.destination.bootstrap,
            "destination-topic": f"{self.topic}-twin",
        }
        flags = [word for name, value in told.items() for word in (f"--{name}", value)]
        return [sys.executable, "-m", "twinlog", "reo", *flags, *self.flags.split()]

    def start(self, **environment: str) -> Self:
        """Begin, or begin anew after an end."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.words, env=os.environ | environment, stdout=log, stderr=log)
        Watchdog.shared().watch(self.process.pid)
        return self

    @property
    def alive(self) -> bool:
        """Whether its process runs, frozen or not."""
        return self.process is not None and self.process.poll() is None

    def send(self, number: int) -> None:
        """Send a signal, if there is anybody to get it."""
        if self.process is not None and self.alive:
            self.process.send_signal(number)

    def end(self, number: int = signal.SIGKILL, timeout_s: float = 20.0) -> int:
        """Send a signal and return the exit code."""
        assert self.process is not None
        self.send(number)
        code = self.process.wait(timeout_s)
        Watchdog.shared().forget(self.process.pid)
        return code

    def status(self) -> list[dict[str, Any]]:
        """What `--status --json` says of each partition."""
        words = [*self.words, "--status", "--json"]
        told = subprocess.run(words, capture_output=True, check=True, timeout=30)
        rows: list[dict[str, Any]] = json.loads(told.stdout)["partitions"]
        return rows

    def errors(self) -> dict[int, str]:
        """Why partitions stand still, by their numbers."""
        return {int(row["partition"]): str(row["error"]) for row in self.status() if row["error"]}

    def text(self, last: int = 4000) -> str:
        """The end of what it has written."""
        return self.log.read_text("utf-8")[-last:] if self.log.exists() else ""


class Flow:
    """Writes numbered records to every partition of the source while its block runs; each says where it is from.

    The value is `partition:number`, the numbers of a partition go from 0 on. What the source has not taken at once is
    sent again by the client until it has: at the end everything that was numbered is there, in order, once.
    """

    def __init__(self, source: LocalKafka, topic: str, *, per_second: int = 400) -> None:
        self.written = 0
        self._topic, self._every_s = topic, PARTITIONS / per_second
        self._producer = Producer(
            {
                "bootstrap.servers": source.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 300_000,
                "compression.type": "lz4",
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(30)
        assert self._producer.flush(120) == 0, "the source has not taken everything"

    def write(self, count: int) -> None:
        """So many more records for each partition."""
        for number in range(self.written, self.written + count):
            for partition in range(PARTITIONS):
                self._put(partition, number)
        self.written += count
        assert self._producer.flush(120) == 0, "the source has not taken everything"

    def _put(self, partition: int, number: int) -> None:
        value = b"%d:%d" % (partition, number)
        while True:
            try:
                self._producer.produce(self._topic, value=value, key=b"k%d" % (number % 50), partition=partition)
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def _run(self) -> None:
        began, first = time.monotonic(), self.written
        while not self._stopping.is_set():
            wait_s = began + (self.written - first) * self._every_s - time.monotonic()
            if wait_s > 0:
                self._stopping.wait(wait_s)
            for partition in range(PARTITIONS):
                self._put(partition, self.written)
            self.written += 1


class Counter:
    """A read_committed reader of the destination, without anything of the copy's own code."""

    def __init__(self, destination: LocalKafka, topic: str) -> None:
        self.seen: dict[int, list[str]] = defaultdict(list)
        self._consumer = Consumer(
            {
                "bootstrap.servers": destination.bootstrap,
                "group.id": f"{topic}-counter",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])

    def close(self) -> None:
        """End reading."""
        self._consumer.close()

    @property
    def count(self) -> int:
        """How many records it has seen."""
        return sum(map(len, self.seen.values()))

    def read(self, count: int, *, within_s: float = ARRIVES_WITHIN_S, quiet_s: float = 1.5) -> int:
        """Read until `count` records were seen and nothing more has come for `quiet_s`, or the time is over."""
        deadline, last = time.monotonic() + within_s, time.monotonic()
        while time.monotonic() < deadline and (self.count < count or time.monotonic() - last < quiet_s):
            for message in self._consumer.consume(5_000, 0.2):
                if not message.error():
                    last = time.monotonic()
                    self.seen[message.partition()].append((message.value() or b"").decode())
        return self.count

    def assert_each_once(self, numbers: int) -> None:
        """Every partition holds its records 0 to `numbers` - 1, each once and in this order; says what is wrong."""
        wrong = [told for at in range(PARTITIONS) if (told := trouble(at, self.seen[at], numbers))]
        assert not wrong, "\n".join(wrong)


def trouble(partition: int, values: Sequence[str], numbers: int) -> str:
    """What a partition's records have against being `partition:0` to `partition:numbers-1`."""
    expected = [f"{partition}:{number}" for number in range(numbers)]
    if values == expected:
        return ""
    have, wanted = set(values), set(expected)
    twice = sorted({value for value, n in _counted(values).items() if n > 1}, key=_place)
    lost, foreign = sorted(wanted - have, key=_place), sorted(have - wanted)
    told = {"lost": lost, "more than once": twice, "foreign": foreign}
    found = [f"{len(those)} {what} ({', '.join(those[:5])})" for what, those in told.items() if those]
    return f"partition {partition}: {len(values)} records; {'; '.join(found) or 'out of order'}"


def _counted(values: Sequence[str]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for value in values:
        counts[value] += 1
    return counts


def _place(value: str) -> int:
    return int(value.partition(":")[2])


class Scene:
    """A topic on both sides, what is written to it, the processes that copy it, and who counts what arrives.

    `twin_on`: the brokers of each partition of the destination topic, all of which must have each record.
    """

    def __init__(
        self,
        source: LocalKafka,
        destination: LocalKafka,
        topic: str,
        folder: Path,
        *,
        twin_on: Sequence[Sequence[int]] = (),
    ) -> None:
        source.create_topic(topic, partitions=PARTITIONS)
        if twin_on:
            create_on(destination, f"{topic}-twin", twin_on)
        else:
            destination.create_topic(f"{topic}-twin", partitions=PARTITIONS)
        self.source, self.destination, self.topic, self.folder = source, destination, topic, folder
        self.counter = Counter(destination, f"{topic}-twin")
        self.copies: list[Copy] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.counter.close()
        for copy in self.copies:
            copy.end()

    def begin(self, flags: str = "", **environment: str) -> Copy:
        """Start one more process."""
        log = self.folder / f"{self.topic}-{len(self.copies)}.log"
        copy = Copy(self.source, self.destination, self.topic, log, flags)
        self.copies.append(copy.start(**environment))
        return copy

    def begin_way(self, way: str) -> list[Copy]:
        """Start what a way of copying needs."""
        return [self.begin(flags) for flags in WAYS[way]]

    def flow(self, *, per_second: int = 400) -> Flow:
        """Records for the source."""
        return Flow(self.source, self.topic, per_second=per_second)

    def assert_each_once(self, flow: Flow, *, within_s: float = ARRIVES_WITHIN_S) -> int:
        """Everything that was written arrives, once and in order; returns how many records that are."""
        total = flow.written * PARTITIONS
        self.counter.read(total, within_s=within_s)
        try:
            self.counter.assert_each_once(flow.written)
        except AssertionError as wrong:
            wrong.add_note("\n".join(f"--- {copy.flags}\n{copy.text()}" for copy in self.copies))
            raise
        return total


def kill_again_and_again(victims: Sequence[Copy], chance: random.Random, *, times: int, longest_s: float = 3.0) -> int:
    """SIGKILL one of the processes at a random moment and start it again, so many times.

    Returns how many of them met a process that had not ended by itself.
    """
    met = 0
    for _ in range(times):
        victim = chance.choice(list(victims))
        time.sleep(chance.uniform(0.05, longest_s))
        met += victim.alive
        victim.end()
        victim.start()
    return met


def create_on(kafka: LocalKafka, topic: str, brokers: Sequence[Sequence[int]]) -> None:
    """Create a topic with its partitions' replicas where they are said to be, all of them needed."""
    needed = {"min.insync.replicas": str(len(brokers[0]))}
    made = NewTopic(topic, len(brokers), replica_assignment=[list(one) for one in brokers], config=needed)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([made], operation_timeout=20)[topic].result(20)


def ask(copy: Copy, path: str) -> tuple[int, str]:
    """What its HTTP endpoint answers; 0 where there is none yet."""
    where = re.search(r"at (http://\S+)", copy.text(100_000))
    if where is None:
        return 0, ""
    try:
        with urllib.request.urlopen(where[1] + path, timeout=5) as answer:  # noqa: S310  # our own address
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
    except OSError:
        return 0, ""


def shares(copy: Copy) -> float:
    """How many shares of the last stage an instance has."""
    stage = "stage 2" if "proxy" in copy.flags else "direct"
    found = re.search(rf'^twinlog_reo_shares\{{stage="{stage}"\}} (\S+)$', ask(copy, "/metrics")[1], re.MULTILINE)
    return 0.0 if found is None else float(found[1])


def both(*actions: Callable[[], object]) -> None:
    """Do these at the same time, and wait for all."""
    with ThreadPoolExecutor(len(actions)) as pool:
        for future in [pool.submit(action) for action in actions]:
            future.result()


def wait_for_error(copy: Copy, *words: str, timeout_s: float = 40.0) -> dict[int, str]:
    """Wait until the status of some partition has all these words; returns all that stand still."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = copy.errors()
        if any(all(word in told for word in words) for told in found.values()):
            return found
        assert time.monotonic() < deadline, f"nothing with {words} in {found}; the log ends:\n{copy.text()}"
        time.sleep(0.2)
