"""What programs call to manage mirrors: `MirrorAdmin`; the command line is a thin layer on it.

`mirrors` has the calls, `starting` and `stopping` the two flows that take more than one step, `results` the values they
return. `sources` reaches a mirror's source, `state` the records of the mirrors, `live` says whether workers are alive.
Of a start: `loops` (does the source have the topics from here?), `failback` and `divergence` (does the destination have
what the source never saw?), `recreate` and `salvage` (save that, and delete the topic), `twins` (can what is there be
the twin, and which partitions does it lack?), `beginnings`; of a stop:
`promotion` (is the destination level?). `starts` tells `twinlog verify` where a mirror was told to begin.
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
from twinlog.control.mirror_configs import ConfigDescription, MirrorConfigs, PatternDescription

__all__ = [
    "ConfigDescription",
    "CreateMirrorResult",
    "DescribeMirrorsResult",
    "MirrorAdmin",
    "MirrorConfigs",
    "MoveMirrorTopicsResult",
    "PatternDescription",
    "StartMirrorTopicsResult",
    "StopMirrorTopicsResult",
]
