"""What belongs to a topic beside its records: its partitions and configs at the destination.

Each module reads both sides, plans (pure) and applies. May import `state`, `wire`, `control`, `config`.
"""
