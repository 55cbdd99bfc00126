"""One partition's data path, in reading order.

`takeover` finds out where the destination's log really ends and proves that it agrees with the source; then `pump`
turns round and round: `fetch`, `decide`, `rewrite`, `append`, `confirm`. `lease` says whether this worker may send at
all. `partition` is the life of it all under one owner; `progress` has the values that travel.

Beside the takeover: `lookups` asks a cluster for many partitions at once, `tailcheck` compares both logs, `prefix`
meets a source that starts above 0. Behind `fetch`: `inbox` holds what has not been taken. Behind `append`:
`destination`, which gives data to `lanes`, blanks to `markers`, and very long runs of blanks to `longrun`; `stream` is
what they are bound to.

May import: `batch`, `wire`, `config`, `errors`, `names`. `progress`, `decide`, `rewrite` and `confirm` are pure: bytes
and values in, values out.
"""
