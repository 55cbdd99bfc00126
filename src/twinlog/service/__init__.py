"""The worker: shares the partitions with other workers, runs a relay for each of its own, publishes progress.

`membership` says which shards are ours, `shards` claims and runs them, `supervisor` moves one partition of them to its
desired state. `keeper` renews the lease by committing what the others want to be remembered, `figures` are what it
publishes. `sources` and `facts` are what a partition needs of both clusters, `sweep` looks after idle partitions,
`discovery` finds new topics, `worker` puts it all together.

May import everything but `cli` and `verify`.
"""
