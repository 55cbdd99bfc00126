"""Soak: the network at its worst, between worker and source and between worker and destination.

| test       | covers                                                                                      | minutes |
|------------|---------------------------------------------------------------------------------------------|---------|
| swallowed  | 200 times the answers to appends are swallowed and the connections cut, a single broker      | 8       |
| three      | the same at three brokers, RF 3, one proxy at a time, 60 times                               | 4       |
| any fault  | 100 times cut, refused, stalled or slowed, any direction, beginning at any byte, either side | 6       |
| addresses  | the source's broker moves to another address under its old name, ten times; a name with      | 4       |
|            | three addresses, one that refuses and one that drops packets, 50 starts                      |         |

All of it scales with TWINLOG_SOAK_SCALE.
"""

import asyncio
import json
import random
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.real.faults import FaultyMirror, disturb, wait_progress
from tests.soak.soaking import Soak, scaled

from twinlog.config.client import ClientSettings
from twinlog.testing.kafka import PROXIED, Listener, LocalKafka
from twinlog.testing.load import Flow
from twinlog.wire.cluster import Cluster

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2400)]

PARTITIONS = 6
TOPIC = "soaked"
ABORTED_RUN = 12_000
NAME = "kafka.source.test"
# A worker that asks a file what a name stands for, on the event loop whose look-ups can be replaced.
WORKER_WITH_NAMES = """
import asyncio, json, sys
from pathlib import Path
sys.modules["uvloop"] = None
look_up = asyncio.BaseEventLoop.getaddrinfo

async def from_file(self, host, port, **options):
    known = json.loads(Path({names!r}).read_text())
    found = [await look_up(self, address, port, **options) for address in known.get(host, [host])]
    return [entry for entries in found for entry in entries]

asyncio.BaseEventLoop.getaddrinfo = from_file
from twinlog.config.client import ClientSettings
from twinlog.service.worker import run_worker
sys.exit(run_worker(ClientSettings.from_properties({{}}, bootstrap=sys.argv[1], origin="test"), verbose=False))
"""
# One address that says nothing costs a second of this; the rest is the machine's.
START_WITHIN_S = 5.0


@contextmanager
def proxied_mirror(brokers: int) -> Iterator[FaultyMirror]:
    """A running mirror into so many brokers that knows the proxies' addresses only."""
    with (
        LocalKafka(proxied=True) as source,
        LocalKafka(brokers, proxied=True) as destination,
        FaultyMirror(
            source,
            destination,
            source_address=source.bootstrap_of(PROXIED),
            destination_address=destination.bootstrap_of(PROXIED),
        ) as mirror,
    ):
        mirror.create(TOPIC, partitions=PARTITIONS)
        mirror.start(TOPIC)
        mirror.wait_mirroring(TOPIC, PARTITIONS)
        yield mirror


@pytest.mark.parametrize(("brokers", "times"), [(1, 200), (3, 60)])
def test_answers_swallowed_and_then_the_connections_cut(brokers: int, times: int) -> None:
    """What was carried out and never answered is neither lost nor written twice, and needs no restart."""
    rng = random.Random(times)
    with Soak(f"answers of {brokers} broker(s) swallowed") as soak, proxied_mirror(brokers) as mirror:
        with Flow(mirror.source, TOPIC, seed=200, records_per_second=600, aborted_run=ABORTED_RUN) as flow:
            for turn in range(scaled(times)):
                proxy = mirror.destination.proxy[rng.randrange(brokers) + 1]
                proxy.swallow(after_bytes=rng.randrange(1, 5_000))
                time.sleep(rng.uniform(0.05, 1.0))
                proxy.resume()
                soak.note("times answers swallowed")
                time.sleep(rng.uniform(0.0, 3.0))
                if turn % 20 == 0:
                    wait_progress(mirror, TOPIC)
            wait_progress(mirror, TOPIC)
        assert soak.assert_twins(mirror, TOPIC) == flow.acknowledged
        assert mirror.workers[0].alive


def test_connections_cut_refused_stalled_and_slowed_at_any_byte() -> None:
    """Between worker and source, and between worker and destination."""
    rng = random.Random(100)
    with Soak("any fault of the network") as soak, proxied_mirror(1) as mirror:
        with Flow(mirror.source, TOPIC, seed=100, records_per_second=600, aborted_run=ABORTED_RUN) as flow:
            for _ in range(scaled(100)):
                disturb(rng.choice([mirror.source, mirror.destination]).proxy[1], rng)
                soak.note("faults")
                time.sleep(rng.uniform(0.0, 2.0))
            wait_progress(mirror, TOPIC)
        assert soak.assert_twins(mirror, TOPIC) == flow.acknowledged
        assert mirror.workers[0].alive


def test_the_source_moves_to_other_addresses_under_its_old_name(tmp_path: Path) -> None:
    """The name is looked up again and again; the address that it had before refuses, and so does one beside it."""
    names = tmp_path / "names.json"
    with Soak("other addresses under the old name") as soak, ExitStack() as stack:
        source, destination = named_source(), stack.enter_context(LocalKafka())
        port = source[1].ports["NAMED"]
        move(source, names, 2)
        stack.enter_context(source)
        mirror = FaultyMirror(source, destination, source_address=f"{NAME}:{port}", workers=0)
        stack.enter_context(mirror)
        mirror.start_worker(WORKER_WITH_NAMES.format(names=str(names)))
        mirror.create(TOPIC, partitions=PARTITIONS)
        mirror.start(TOPIC)
        mirror.wait_mirroring(TOPIC, PARTITIONS)
        with Flow(source, TOPIC, seed=1, records_per_second=300):
            for number in range(3, 3 + scaled(10, least=2)):
                wait_progress(mirror, TOPIC)
                source[1].stop()
                move(source, names, number)
                source[1].start()
                source.wait_ready()
                wait_progress(mirror, TOPIC)
                soak.note("moves")
        assert soak.assert_twins(mirror, TOPIC) > 0
        assert mirror.workers[0].alive


def named_source() -> LocalKafka:
    """A broker with one more listener, which is known by a name; `move` says at which address it is to listen."""
    return LocalKafka(listeners=[Listener("NAMED")])


def move(kafka: LocalKafka, names: Path, number: int) -> None:
    """Let the named listener be at 127.0.0.`number`, before the broker's (next) start."""
    ports = kafka[1].ports
    listeners = f"PLAINTEXT://127.0.0.1:{ports['PLAINTEXT']},NAMED://127.0.0.{number}:{ports['NAMED']}"
    own = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{ports['CONTROLLER']}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{ports['PLAINTEXT']},NAMED://{NAME}:{ports['NAMED']}",
    }
    kafka._broker_config[1] = own
    path = kafka[1].config_path
    if path.exists():
        path.write_text(re.sub(r"NAMED://127\.0\.0\.\d+", f"NAMED://127.0.0.{number}", path.read_text()))
    beside = names.with_suffix(".new")
    beside.write_text(json.dumps({NAME: ["127.0.0.250", f"127.0.0.{number}"]}))
    beside.rename(names)


async def test_a_name_with_dead_addresses_is_started_with_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One address refuses, one takes no connection and says nothing, one is good: each start is through in time."""
    with Soak("a name with dead addresses") as soak, named_source() as kafka, silent(kafka) as nobody:
        address = ("127.0.0.250", nobody, "127.0.0.1")
        port = kafka[1].ports["PLAINTEXT"]
        look_up_as(monkeypatch, address)
        patience = {"socket.connection.setup.timeout.ms": "1000"}
        settings = ClientSettings.from_properties(patience, bootstrap=f"{NAME}:{port}", origin="test")
        for _ in range(scaled(50, least=5)):
            began = time.monotonic()
            cluster = await Cluster.connect(settings, client_id="test", timeout_s=20)
            took_s = time.monotonic() - began
            await cluster.close()
            soak.note("starts")
            soak.done["ms at most"] = max(soak.done["ms at most"], round(took_s * 1000))
            assert took_s < START_WITHIN_S


@contextmanager
def silent(kafka: LocalKafka) -> Iterator[str]:
    """An address at which connections to the broker's port stay half open for ever: its queue is full."""
    address = ("127.0.0.251", kafka[1].ports["PLAINTEXT"])
    with ExitStack() as stack:
        deaf = stack.enter_context(socket.socket())
        deaf.bind(address)
        deaf.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        yield address[0]


def look_up_as(monkeypatch: pytest.MonkeyPatch, addresses: Sequence[str]) -> None:
    """Let the name stand for these addresses on asyncio's own event loop."""
    look_up = asyncio.BaseEventLoop.getaddrinfo

    async def found(self: asyncio.BaseEventLoop, host: str, port: int, **options: Any) -> list[Any]:
        of = addresses if host == NAME else [host]
        return [entry for one in of for entry in await look_up(self, one, port, **options)]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", found)
