"""What `__mirror_state` means: its records, their bytes, the image they add up to, and the commands that change it.

Pure: values in, values out; no clock, network, randomness or logging. May import `errors`, `names`, `config`. Reading
order: `records`, `lifecycle`, `codec`, `sharding`, `image`, `handle`.
"""
