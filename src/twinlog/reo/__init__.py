"""Copies topics into another cluster's topics so that each record arrives once; the destination's offsets are its own.

`settings` says what, `plan` (pure) what of a fetched answer is sent, `sender` sends it, `positions` keeps how far the
source was read, in the same transaction. A `copier` runs one `stage`: `direct`, or `first_stage` into a proxy topic and
`second_stage` out of it, which meet in `envelope` (pure). `sharing` divides the work among instances, `run` starts it.
"""
