"""Holds a command between its judgement and its commit, so that another one comes in between."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from tests.real.commanding import READY_S

from twinlog.control.records import Change
from twinlog.state.writer import Committed, StateWriter


@dataclass(frozen=True)
class Held:
    """The first command that changes anything has `reached` its commit, and waits until it may `go`."""

    reached: asyncio.Event
    go: asyncio.Event


def hold_the_first_commit(monkeypatch: pytest.MonkeyPatch) -> Held:
    """Hold the first commit of any record from now on."""
    held, commit = Held(asyncio.Event(), asyncio.Event()), StateWriter.commit

    async def holding(writer: StateWriter, changes: Sequence[Change]) -> Committed:
        if changes and not held.reached.is_set():
            held.reached.set()
            await asyncio.wait_for(held.go.wait(), READY_S)
        return await commit(writer, changes)

    monkeypatch.setattr(StateWriter, "commit", holding)
    return held
