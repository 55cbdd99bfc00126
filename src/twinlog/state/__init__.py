"""`__mirror_state` on the destination: read whole, followed live, and written by one fenced transaction at a time.

`topic` makes and checks the topic, `fetch` reads pieces of it, `log` turns them into an image, `writer` commits
records, `transact` is the one way in which an admin command changes anything. May import `control`, `wire`, `config`,
`batch`.
"""
