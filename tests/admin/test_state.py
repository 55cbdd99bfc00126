"""The state as commands use it: a missing right is named with what it is needed for."""

import asyncio
from typing import Any

import pytest

from twinlog.admin import state
from twinlog.errors import AuthorizationFailed, RetryLater

CLUSTER: Any = None


class Log:
    """A state that refuses."""

    def __init__(self, error: Exception) -> None:
        self.changing = asyncio.Lock()
        self._error = error

    async def load(self, **_options: Any) -> Any:
        """Refuse."""
        raise self._error


async def test_the_rights_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading, creating and changing need different ones."""

    async def denied(*_: Any, **__: Any) -> Any:
        raise AuthorizationFailed("Denied.")

    monkeypatch.setattr(state.StateLog, "open", denied)
    monkeypatch.setattr(state, "transact", denied)
    log: Any = Log(AuthorizationFailed("Denied."))
    with pytest.raises(AuthorizationFailed, match=r"^Denied\. The rights needed at the destination are DESCRIBE, "):
        await state.load(log)
    with pytest.raises(AuthorizationFailed, match="CREATE on topic __mirror_state"):
        await state.open_log(CLUSTER, create=True)
    with pytest.raises(AuthorizationFailed, match="READ on topic __mirror_state"):
        await state.open_log(CLUSTER, create=False)
    with pytest.raises(AuthorizationFailed, match="WRITE on transactional id twinlog-admin"):
        await state.change(CLUSTER, log, lambda _image: None)  # type: ignore[arg-type,return-value]


async def test_changes_of_one_process_do_not_shut_each_other_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """They use one transactional id, so each is made once the one before it is over."""
    at_once: list[int] = []
    under_way = 0

    async def changing(*_: Any) -> None:
        nonlocal under_way
        under_way += 1
        at_once.append(under_way)
        await asyncio.sleep(0.01)
        under_way -= 1

    monkeypatch.setattr(state, "transact", changing)
    log: Any = Log(RetryLater("Later."))
    handler: Any = None
    await asyncio.gather(*(state.change(CLUSTER, log, handler) for _ in range(3)))
    assert at_once == [1, 1, 1]


async def test_other_errors_pass_as_they_are() -> None:
    """Only a missing right is explained."""
    log: Any = Log(RetryLater("Later."))
    with pytest.raises(RetryLater, match=r"^Later\.$"):
        await state.load(log)


class HeldUp:
    """A state in which a worker that died has a transaction open."""

    async def load(self, *, timeout_s: float = 60.0, to_stable: bool = False) -> Any:
        """Only what is decided can be read."""
        if not to_stable:
            raise RetryLater(f"held up for {timeout_s} s")
        return "what is decided"


async def test_whoever_only_looks_does_not_wait_for_a_dead_workers_transaction() -> None:
    """It may take 25 s to be aborted; what judges and changes has to wait for that, what only looks has not."""
    log: Any = HeldUp()
    assert await state.read(log) == "what is decided"
    with pytest.raises(RetryLater, match=r"held up for 60\.0 s"):
        await state.load(log)


async def test_a_state_that_cannot_be_read_at_all_is_said_so() -> None:
    """Looking at what is decided is no way round brokers that do not answer, or a missing right."""
    log: Any = Log(RetryLater("Later."))
    with pytest.raises(RetryLater, match=r"^Later\.$"):
        await state.read(log)
    log = Log(AuthorizationFailed("Denied."))
    with pytest.raises(AuthorizationFailed, match=r"^Denied\. The rights needed at the destination are DESCRIBE, "):
        await state.read(log)
