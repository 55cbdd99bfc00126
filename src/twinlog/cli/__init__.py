"""What people type: `kafka-mirrors` (KIP-1279's program) and `twinlog`.

A command parses, calls, and renders; the work is done elsewhere. What a command needs is imported when it runs, since
starting up is most of what a short command does. `common` has what all commands share, `render` is pure.
"""
