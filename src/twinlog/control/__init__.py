"""What `__mirror_state` means: its records, their bytes, the image they add up to, and the commands that change it.

Pure: values in, values out; no clock, network, randomness or logging. May import `errors`, `names`, `config`. Reading
order: `records`, `lifecycle`, `codec`, `sharding`, `image`, `commands`, then `handle` with its parts `handle_mirror`,
`handle_topics` and `anew`, and the `checks` that they make. Which topics a mirror wants: `selection`, and `looked` for
when its patterns were set up. What is shown of it all: `describe`, `mirror_configs`.
"""
