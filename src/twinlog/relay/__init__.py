"""One partition's data path, in reading order.

`takeover` finds out where the destination's log really ends and proves that it agrees with the source; then `pump`
turns round and round: `fetch`, `decide`, `rewrite`, `append`, `confirm`. `lease` says whether this worker may send at
all.

May import: `batch`, `wire`, `config`, `errors`, `names`. `progress`, `decide`, `rewrite` and `confirm` are pure: bytes
and values in, values out.
"""
