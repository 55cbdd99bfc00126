"""The log as bytes: read a batch's header, decide what a reader would see, rewrite the header, make blanks.

Pure: bytes and values in, bytes and values out; no asyncio, clock, randomness, logging or socket. It may import
`twinlog.errors`, `twinlog.names`, checksums (`crc32c`, `zlib`) and codecs (`cramjam`), nothing else.

In reading order: `layout` (where a field lies), `view` (one batch), `scan` (a fetched buffer), `join` (several small
batches as one), `edit` (a batch as we send it), `blank` (filler). For slow paths only: `codecs`, `section` (magic 2's
records), `old` (magic 0 and 1), `records` (decode, encode, rewrite), `compare`, and `fill` (what fills holes).
"""
