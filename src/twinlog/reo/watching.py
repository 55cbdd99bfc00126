"""Beside a copier at work: says once a minute how far it is, and what holds it where it does not come on."""

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any, Final

from twinlog.reo.copier import Copier
from twinlog.reo.lines import goes_on

log = logging.getLogger("twinlog.reo")

LOOK_EVERY_S: Final = 5.0
SLOW_S: Final = 5.0
TELL_EVERY_S: Final = 60.0


async def watch(copier: Copier[Any]) -> None:
    """Watch until cancelled."""
    told_at, since = time.monotonic(), replace(copier.counts)
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        try:
            if copier.quiet_s() > SLOW_S:
                await copier.look_for_holdup()
            if time.monotonic() - told_at >= TELL_EVERY_S:
                log.info("%s: %s", copier.name, goes_on(copier.facts(), since, copier.counts))
                told_at, since = time.monotonic(), replace(copier.counts)
        except Exception:  # a mistake of ours: who only looks on must neither end the copying nor fall silent
            log.exception("%s: what holds it and how far it is could not be told; that is tried again", copier.name)
