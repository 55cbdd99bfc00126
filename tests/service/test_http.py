"""The worker's HTTP endpoints, over real sockets."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import NO_TOPIC_ID, PartitionRecord, TopicRecord
from twinlog.errors import BadInput
from twinlog.relay.lease import Lease
from twinlog.service.http import SILENT_S, Endpoints, HttpServer, listening
from twinlog.service.metrics import Sights


async def _get(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    text = (await asyncio.wait_for(reader.read(), 5)).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = text.partition("\r\n\r\n")
    return int(head.split()[1]), body


def _view(
    *, lease: bool = True, told_ago_s: float = 0.0, asks: bool = True, trouble: str = "", failed: str = ""
) -> Any:
    held = Lease(time.monotonic)
    if lease:
        held.renewed(time.monotonic())
    relay = SimpleNamespace(figures=SimpleNamespace(told_at=time.monotonic() - told_ago_s), asks_source=asks)
    supervisor = SimpleNamespace(
        mirror="m",
        topic="t",
        partition=0,
        relay=relay,
        counts=SimpleNamespace(appended_at=-1.0),
        state=PartitionState.FAILED if failed else PartitionState.MIRRORING,
        record=PartitionRecord("m", "t", 0, PartitionState.MIRRORING, error=failed),
    )
    return SimpleNamespace(
        lease=held,
        image=Image([TopicRecord("m", "t", DesiredState.MIRRORING, NO_TOPIC_ID, NO_TOPIC_ID, 1)]),
        shards=SimpleNamespace(supervisors=[supervisor]),
        sources=SimpleNamespace(trouble=lambda _mirror: trouble),
        sights=Sights(),
        samples=lambda _now: [("twinlog_shards_owned", (), 4)],
    )


async def test_paths_are_answered_and_the_end_is_quick() -> None:
    """Before the worker serves it is alive and not ready."""
    endpoints, at = Endpoints(), listening("127.0.0.1:0")
    port = at.getsockname()[1]
    server = HttpServer(endpoints, at)
    try:
        assert await _get(port, "/healthz") == (200, "ok\n")
        assert await _get(port, "/readyz") == (503, "the worker has not begun\n")
        endpoints.view = _view()
        assert await _get(port, "/readyz") == (200, "ready\n")
        status, text = await _get(port, "/metrics")
        assert (status, "twinlog_shards_owned 4.0" in text) == (200, True)
        assert (await _get(port, "/nothing"))[0] == 404
        assert (await _get(port, "/healthz", "POST"))[0] == 405
        assert await _get(port, "/healthz", "HEAD") == (200, "")
    finally:
        began = time.monotonic()
        await server.close()
    assert time.monotonic() - began < 2.0


@pytest.mark.parametrize(
    ("circumstances", "reason"),
    [
        ({"lease": False}, "the lease is not held"),
        ({"trouble": "the source refused the credentials"}, "the source refused the credentials"),
        ({"told_ago_s": SILENT_S + 5}, "mirror m: its source has said nothing for 15 s"),
        ({"failed": "refused"}, "mirror m: none of its 1 partitions here goes on, the first: refused"),
    ],
)
def test_reasons_name_what_is_missing(circumstances: dict[str, Any], reason: str) -> None:
    """Each alone makes the worker not ready."""
    endpoints = Endpoints()
    endpoints.view = _view(**circumstances)
    (said,) = endpoints.reasons()
    assert said.startswith(reason)


def test_source_of_which_nothing_is_asked_is_not_silent() -> None:
    """What was fetched waits for a destination that does not take it: that is another's fault."""
    endpoints = Endpoints()
    endpoints.view = _view(told_ago_s=SILENT_S + 5, asks=False)
    assert endpoints.reasons() == []


def test_source_that_never_answered_is_silent_since_it_was_asked() -> None:
    """Also before there is a relay: the takeover may hang at the source."""
    endpoints, view = Endpoints(), _view()
    endpoints.view = view
    view.shards.supervisors[0].relay = None
    view.sights.look(view.shards.supervisors, time.monotonic() - SILENT_S - 1)
    (said,) = endpoints.reasons()
    assert said == "mirror m: its source has said nothing for 11 s"


@pytest.mark.parametrize("text", ["9404", ":9404", "a:", "a:b", "a:70000", "a:-1", "no.such.host.invalid:1"])
def test_an_address_that_is_none_is_answered_with_a_sentence(text: str) -> None:
    """It names the flag and what was given."""
    with pytest.raises(BadInput, match="--http") as said:
        listening(text)
    assert text in str(said.value)


def test_a_port_that_is_taken_is_told() -> None:
    """With the system's own reason."""
    with listening("127.0.0.1:0") as first:
        address = f"127.0.0.1:{first.getsockname()[1]}"
        with pytest.raises(BadInput, match="in use"):
            listening(address)
