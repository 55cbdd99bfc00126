"""How contestants are called, in tables, in the figures and in the picture."""

from typing import Final

TWINLOG: Final = "twinlog"
DEFAULT: Final = "MirrorMaker 2, default"
TUNED: Final = "MirrorMaker 2, tuned"
SOURCE: Final = "the source itself"
FETCH: Final = "raw fetch alone"
PRODUCE: Final = "raw produce alone"
BOTH: Final = "raw fetch and produce at once"
