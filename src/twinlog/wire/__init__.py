"""Speaks Kafka's protocol to a cluster: connections, metadata, and typed operations on top.

From the bottom: `frames` (bytes), `messages` and `codes` (what they mean), `oauth`, `auth`, `connection`, then
`cluster` and the operations. May import `batch`, `config`, `errors`, `names`.
"""
