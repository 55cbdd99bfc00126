"""Speaks Kafka's protocol to a cluster: connections, metadata, and typed operations on top.

From the bottom: `frames` (bytes), `messages`, `share_messages` and `codes` (what they mean), `oauth`, `stores` and
`auth` (who we are), `connection`, then `cluster`, which `dial`s, keeps connections in `lanes`, shares `flights`, and
knows the `metadata` and `leaders`; `retry` and `requirements` are its manners. On top the operations: `ops` gathers
them from `ops_…`; `produce` and `log_ends` are made by hand, since they are asked for all the time. May import `batch`,
`config`, `errors`, `names`.
"""
