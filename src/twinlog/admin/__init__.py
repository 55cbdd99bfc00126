"""What programs call to manage mirrors: `MirrorAdmin`; the command line is a thin layer on it.

`mirrors` has the calls, `starting` and `stopping` the two flows that take more than one step, `results` the values they
return. `sources` reaches a mirror's source, `state` the records of the mirrors, `live` says whether workers are alive.
May import `sync`, `state`, `control`, `wire`, `config`.
"""

from twinlog.admin.mirrors import MirrorAdmin
from twinlog.admin.results import (
    CreateMirrorResult,
    DescribeMirrorsResult,
    MoveMirrorTopicsResult,
    StartMirrorTopicsResult,
    StopMirrorTopicsResult,
)

__all__ = [
    "CreateMirrorResult",
    "DescribeMirrorsResult",
    "MirrorAdmin",
    "MoveMirrorTopicsResult",
    "StartMirrorTopicsResult",
    "StopMirrorTopicsResult",
]
