"""Soak: records a month old, at a destination that forgets producers after 20 s, under kills of workers and broker.

The broker forgets a producer by the time of its last *record*, so for such data it recognises no duplicate and accepts
any sequence. Blanks, which are stamped with the time of writing, stand between the old records.

| test          | covers                                                                                  | minutes |
|---------------|-----------------------------------------------------------------------------------------|---------|
| one broker    | 30 kills of workers, 6 of the destination's only broker, for up to 25 s                  | 8       |
| three brokers | 20 leaders killed behind whom followers are paused, and as many workers                  | 8       |

All of it scales with TWINLOG_SOAK_SCALE.
"""

import random
import threading
import time
from collections.abc import Callable
from typing import Any, Self

import pytest
from tests.real.brokers import Losses
from tests.real.faults import FaultyMirror, elect_leaders, kill_workers, wait_progress
from tests.soak.soaking import Soak, scaled

from twinlog.testing.data import Made
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.load import Load

MONTH_MS = 30 * 24 * 3600 * 1000
PARTITIONS = 4
FORGETFUL = {"producer.id.expiration.ms": "20000", "producer.id.expiration.check.interval.ms": "1000"}
SEED = 8
TOPIC = "old"


class OldFlow:
    """Writes records that are a month old, mixed with committed and aborted transactions of the same age."""

    def __init__(self, cluster: LocalKafka, topic: str, seed: int) -> None:
        self._rng = random.Random(seed)
        self._load = Load(cluster, topic, self._rng)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)
        self._load.close()
        assert self._error is None, repr(self._error)

    def _run(self) -> None:
        try:
            while not self._stopping.wait(0.05):
                self._rng.choice(self._kinds())()
        except BaseException as error:  # noqa: BLE001 - raised where the flow ends
            self._error = error

    def _kinds(self) -> list[Callable[[], Any]]:
        return [
            self._plain,
            self._plain,
            lambda: self._transaction(commit=True),
            lambda: self._transaction(commit=False),
        ]

    def _records(self) -> list[Made]:
        then_ms = int(time.time() * 1000) - MONTH_MS
        return [Made(b"old", self._rng.randbytes(100), [], then_ms) for _ in range(self._rng.randint(1, 60))]

    def _plain(self) -> None:
        self._load._write(self._load._producer("lz4"), self._records(), None)

    def _transaction(self, *, commit: bool) -> None:
        with self._load.open_transaction(0) as transaction:
            transaction.send(self._records())
            if commit:
                transaction.commit()


pytestmark = [pytest.mark.soak, pytest.mark.timeout(2400)]


def test_records_a_month_old_survive_kills_where_producers_are_forgotten_soon() -> None:
    """Without the broker's memory of producers nothing is lost or doubled all the same."""
    rng = random.Random(SEED)
    with (
        Soak("a month old, one broker") as soak,
        LocalKafka() as source,
        LocalKafka(config=FORGETFUL) as destination,
        FaultyMirror(source, destination, workers=2) as mirror,
    ):
        start(mirror)
        with OldFlow(source, TOPIC, SEED):
            for _ in range(scaled(6)):
                kill_workers(mirror, TOPIC, rng, times=5)
                soak.note("kills of workers", 5)
                destination[1].kill()
                time.sleep(rng.uniform(0.5, 25.0))
                destination[1].start()
                destination.wait_ready()
                soak.note("kills of the broker")
                wait_progress(mirror, TOPIC)
        assert soak.assert_twins(mirror, TOPIC) > 1000


def test_records_a_month_old_survive_leaders_that_die_with_followers_behind() -> None:
    """The next leader lacks some of them and knows nothing of their producer."""
    rng = random.Random(SEED)
    with (
        Soak("a month old, three brokers") as soak,
        LocalKafka() as source,
        LocalKafka(3, config=FORGETFUL) as destination,
        FaultyMirror(source, destination, workers=2) as mirror,
    ):
        start(mirror)
        losses = Losses()
        with OldFlow(source, TOPIC, SEED):
            for _ in range(scaled(20, least=2)):
                losses.lose_leader(mirror, TOPIC, rng)
                kill_workers(mirror, TOPIC, rng, times=1)
                wait_progress(mirror, TOPIC)
                elect_leaders(destination)
        soak.note("leaders and as many workers killed", losses.kills)
        soak.note("of them with offsets that no follower had", losses.with_loss)
        soak.note("such offsets", losses.offsets)
        assert soak.assert_twins(mirror, TOPIC) > 1000


def start(mirror: FaultyMirror) -> None:
    """One topic, mirroring."""
    mirror.create(TOPIC, partitions=PARTITIONS)
    mirror.start(TOPIC)
    mirror.wait_mirroring(TOPIC, PARTITIONS)
