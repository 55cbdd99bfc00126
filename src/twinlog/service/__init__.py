"""The worker: shares the partitions with other workers, runs a relay for each of its own, publishes progress.

`membership` says which shards are ours, `shards` claims and runs them, `keeper` renews the lease by committing what
the others want to be remembered, `sweep` looks after idle partitions, `worker` puts it all together.

May import everything but `cli` and `verify`.
"""
