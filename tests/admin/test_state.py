"""The state as commands use it: a missing right is named with what it is needed for."""

from typing import Any

import pytest

from twinlog.admin import state
from twinlog.errors import AuthorizationFailed, RetryLater

CLUSTER: Any = None


class Log:
    """A state that refuses."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def load(self) -> Any:
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


async def test_other_errors_pass_as_they_are() -> None:
    """Only a missing right is explained."""
    log: Any = Log(RetryLater("Later."))
    with pytest.raises(RetryLater, match=r"^Later\.$"):
        await state.load(log)
