"""`twinlog demo`: two real Kafka clusters on this machine, a mirror between them, and the proof that they agree.

`flow` is the story in order; `stage` has what it happens on (clusters, topic, producer), `programs` runs the very
commands that it prints, `watch` looks at the mirror's progress, `screen` shows it all. The only part of the package
that imports `twinlog.testing`.
"""

import argparse
from typing import Final

DESCRIPTION: Final = """\
Starts two real Kafka clusters on this machine, fills a topic with data of every kind, keeps a producer running, and
mirrors the topic by the commands that it prints. When the mirror has caught up, both clusters are compared offset by
offset. In a terminal everything then keeps running until Ctrl-C; elsewhere it ends.

The first time, Kafka is fetched into the user's cache folder; nothing else stays behind.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "demo",
        help="two real Kafka clusters, a mirror between them, and the proof that they agree",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)


def run(_given: argparse.Namespace) -> int:
    """Run the demo and return the exit code; what goes wrong is raised as an error whose text is a sentence."""
    from twinlog.cli.demo.flow import show_all  # noqa: PLC0415  # see the package `cli`

    return show_all()
