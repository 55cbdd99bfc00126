"""Copies topics into another cluster's topics so that each record arrives once; the destination's offsets are its own.

`settings` says what, `plan` (pure) what of a fetched answer is sent, `sender` sends it in a transaction, `positions`
keeps how far the source was read, in the same transaction, and `copier` puts them together.
"""
