"""How contestants are called, in tables, in the figures and in the picture."""

from typing import Final

TWINLOG: Final = "twinlog"
DEFAULT: Final = "MirrorMaker 2, default"
TUNED: Final = "MirrorMaker 2, tuned"
SOURCE: Final = "the source itself"
FETCH: Final = "raw fetch alone"
PRODUCE: Final = "raw produce alone"
BOTH: Final = "raw fetch and produce at once"
REO_DIRECT: Final = "twinlog reo, direct"
REO_PROXY: Final = "twinlog reo, proxy"
MM2_AT_LEAST_ONCE: Final = "MirrorMaker 2, at least once"
MM2_EXACTLY_ONCE: Final = "MirrorMaker 2, exactly once"
