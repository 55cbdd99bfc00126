"""Workers that stop themselves between the look at their lease and the bytes' leaving, and who thaws them when.

A worker looks at its lease in the same synchronous step that hands a request to the socket. A process may be stopped
even there. What is left open by that is a race of milliseconds with the successor's first run of blanks, so it is
provoked: a worker whose order is in the folder sends itself SIGSTOP in that very step, and whoever is the first to
write markers to one of the same partitions thaws it right before.
"""

import contextlib
import random
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.real.faults import until
from tests.real.mirroring import Worker

from twinlog.wire.produce import PRODUCE, WRITE_TXN_MARKERS

WORKER_SCRIPT: Final = """
import json, os, signal, sys, time
from pathlib import Path
from kafka.protocol.producer.produce import ProduceRequest
from kafka.protocol.producer.transaction import WriteTxnMarkersRequest
from twinlog.config.client import ClientSettings
from twinlog.service.worker import run_worker
from twinlog.wire.connection import Connection
from twinlog.wire.produce import WRITE_TXN_MARKERS

folder, own = Path({folder!r}), Path({folder!r}, str(os.getpid()))
send = Connection._send

def targets(plan, chunks):
    body = b"".join(chunks)
    if plan.api_key == WRITE_TXN_MARKERS:
        markers = WriteTxnMarkersRequest.decode(body, version=plan.version).markers
        return sorted({{f"{{t.name}}-{{p}}" for m in markers for t in m.topics for p in t.partition_indexes}})
    topics = ProduceRequest.decode(body, version=plan.version).topic_data
    return sorted({{f"{{t.name}}-{{p.index}}" for t in topics for p in t.partition_data}})

def freeze_where_ordered(plan, chunks):
    ordered = own.with_suffix(".freeze")
    if not ordered.exists() or ordered.read_text() != str(plan.api_key):
        return
    ordered.unlink()
    beside = own.with_suffix(".new")
    beside.write_text(json.dumps(targets(plan, chunks)))
    beside.rename(own.with_suffix(".frozen"))
    os.kill(os.getpid(), signal.SIGSTOP)

def thaw_predecessors(plan, chunks):
    for order in folder.glob("*.thaw"):
        frozen = order.with_suffix(".frozen")
        if order.stem == own.name or not set(json.loads(frozen.read_text())) & set(targets(plan, chunks)):
            continue
        wait_ms = float(order.read_text())
        order.unlink(missing_ok=True)
        os.kill(int(order.stem), signal.SIGCONT)
        time.sleep(wait_ms / 1000)

def send_between(self, plan, chunks, body_bytes):
    freeze_where_ordered(plan, chunks)
    if plan.api_key == WRITE_TXN_MARKERS:
        thaw_predecessors(plan, chunks)
    return send(self, plan, chunks, body_bytes)

Connection._send = send_between
sys.exit(run_worker(ClientSettings.from_properties({{}}, bootstrap=sys.argv[1], origin="test"), verbose=False))
"""
# From the order to the next request of that kind; and from the freeze until somebody else has taken over.
FROZEN_WITHIN_S, TAKEN_WITHIN_S = 40.0, 60.0
ONLY_MARKERS: Final = (WRITE_TXN_MARKERS,)
MARKERS_AND_DATA: Final = (WRITE_TXN_MARKERS, WRITE_TXN_MARKERS, PRODUCE)


@dataclass
class Freezer:
    """Orders workers of `WORKER_SCRIPT` to stop themselves, through files in a folder."""

    folder: Path
    frozen: int = 0
    thawed_by_successor: int = 0

    @property
    def script(self) -> str:
        """What workers that obey are started with."""
        return WORKER_SCRIPT.format(folder=str(self.folder))

    def freeze_until_succeeded(self, victim: Worker, rng: random.Random, kinds: tuple[int, ...]) -> bool:
        """Let `victim` stop itself right before a request of one of `kinds`; thawed by the one who takes over.

        The successor thaws it just before its own first markers and then waits for some milliseconds, so that the old
        request goes first more often than not. Where no successor wrote any in time, it is thawed as it is. Returns
        whether it was frozen at all: a worker that owns nothing just then sends nothing.
        """
        own = self.folder / str(victim.pid)
        _write(own.with_suffix(".freeze"), str(rng.choice(kinds)))
        try:
            until(own.with_suffix(".frozen").exists, timeout_s=FROZEN_WITHIN_S, what="the worker freezes")
        except AssertionError:
            own.with_suffix(".freeze").unlink(missing_ok=True)
            return False
        self.frozen += 1
        order = own.with_suffix(".thaw")
        _write(order, str(rng.choice([0.0, 1.0, 5.0, 20.0])))
        with contextlib.suppress(AssertionError):
            until(lambda: not order.exists(), timeout_s=TAKEN_WITHIN_S, what="a successor writes markers")
            self.thawed_by_successor += 1
        order.unlink(missing_ok=True)
        own.with_suffix(".frozen").unlink(missing_ok=True)
        victim.send(signal.SIGCONT)
        return True


def _write(path: Path, text: str) -> None:
    """All of it at once, since others look."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.rename(path)


@contextlib.contextmanager
def freezer() -> Iterator[Freezer]:
    """A freezer with a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="twinlog-freezer-") as folder:
        yield Freezer(Path(folder))
