"""One partition's data path, in reading order.

`takeover` finds out where the destination's log really ends and proves that it agrees with the source; then `pump`
turns round and round: `fetch`, `decide`, `rewrite`, `append`, `confirm`. `lease` says whether this worker may send at
all. `partition` is the life of it all under one owner; `progress` has the values that travel.

Beside the takeover: `lookups` asks a cluster for many partitions at once, `tailcheck` compares both logs, `topic_ids`
the topics' ids, `beginning` and `prefix` meet a log that starts above 0, `settle` waits for a log to stand still,
`own_end` finds where our own writing ended. Behind `fetch`: `fetch_request` and `fetch_session` are what is asked,
`pace` and `quota` how soon; `inbox` holds, in `pieces`, what has not been taken, within a `budget`. Behind `append`:
`destination`, which gives data to `lanes`, blanks to `markers`, and very long runs of blanks to `longrun`; `stream` is
what they are bound to, `spread` says to which connection; `window` bounds what replicas may lack, `watermarks` asks how
far they are, `watch` bounds the wait for an answer. The first copy of a compacted topic: `seam` looks whether its holes
are worth filling, `firstcopy`, `filling` and `rolling` do it. Small parts of all: `waiting`, `counts`, `bucket`.

May import: `batch`, `wire`, `config`, `errors`, `names`. `progress`, `decide`, `rewrite` and `confirm` are pure: bytes
and values in, values out.
"""
