"""The worker: shares the partitions with other workers, runs a relay for each of its own, publishes progress.

`membership` says which shards are ours, `shards` claims and runs them, `supervisor` moves one partition of them to its
desired state. `keeper` renews the lease by committing what the others want to be remembered, `figures` are what it
publishes. `sources` and `facts` are what a partition needs of both clusters, `sweep` looks after idle partitions,
`discovery` finds new topics, `worker` puts it all together.

Of one partition: `ledger` holds what is stored and wanted of it, `retries` says when a FAILED one is tried again,
`leftovers` what a stop clears up, `throttle` how fast it may go. For the mirrors whose shard is ours: `coordinator`
does each refresh's syncs, `acls` and `denials` the rights that a stop gives back at once, `last_offsets` the groups'
last sync at a stop, `anew` makes topics anew whose source was truncated; `catchup` lets one wait for the image. What is
shown: `metric_table` names every metric, `metrics` and `copy_metrics` fill it in, `http` answers, `logs` writes lines.

May import everything but `cli` and `verify`.
"""
