"""What belongs to a topic beside its records: partitions, configs, committed offsets of groups, ACLs.

`topics`, `configs` and `refresh` are of the topic itself; `groups` and `share_groups` read and commit offsets in a
`group_pass` each, by `group_rules`; `acls` copies rights, `denials` keep others from writing, both by `acl_change`.
Each module reads both sides, plans (pure) and applies. May import `state`, `wire`, `control`, `config`.
"""
