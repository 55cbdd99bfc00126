"""Compares a topic on two clusters, partition by partition and offset by offset, as a read_committed reader sees it.

`plan` learns what there is to compare, `reader` reads one side ahead, `partition` walks both sides together,
`compaction` judges what only one side still has, `report` says what was found, `run` does it all. May import `batch`,
`wire`, `config`, and of `relay` how a chunk is read (`tailcheck.scan_of`).
"""
