"""What all commands share: parsers that answer a mistake with a sentence, exit codes, settings."""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn

from twinlog.errors import BadInput, TwinlogError

if TYPE_CHECKING:
    from twinlog.config.client import ClientSettings

SUCCESS, FAILURE, INTERRUPTED = 0, 1, 130
TIMEOUT_S = 30.0
CLOSE = 0.7
"""How alike a flag must be to one that exists (difflib's ratio); below, a guess is more often wrong than right."""

MOST_FLAG = 100

# A day: far longer than anybody waits, and no number that a timer cannot take.
MOST_TIMEOUT_S = 86_400.0


class UsageError(BadInput):
    """The command line itself is wrong: answered with the sentence, then with where the flags are told.

    `program`: which program's or subcommand's flags those are; "": those of the program that runs.
    """

    def __init__(self, message: str, *, program: str = "") -> None:
        super().__init__(message)
        self.program = program


class Parser(argparse.ArgumentParser):
    """Raises instead of exiting, and takes no abbreviated flags: a script's flag means one thing in every release."""

    def __init__(self, **settings: object) -> None:
        super().__init__(allow_abbrev=False, **settings)  # type: ignore[arg-type]  # argparse's own long list

    def error(self, message: str) -> NoReturn:
        """Raise UsageError instead of exiting with 2."""
        raise UsageError(f"{message[:1].upper()}{message[1:]}", program=self.prog)

    def parse_known_args(  # type: ignore[override]  # of its overloads, the one that is used here
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse what is not known here, where the flags that may have been meant are: a subcommand knows its own.

        A flag that does not exist is named before one that is missing: the one may be meant for the other.
        """
        words = sys.argv[1:] if args is None else args
        flags = [] if self._subparsers else [word for word in words if self._is_unknown_flag(word)]
        if flags:
            self._refuse(flags)
        given, unknown = super().parse_known_args(words, namespace)
        if unknown:
            self._refuse(unknown)
        return given, unknown

    def _is_unknown_flag(self, word: str) -> bool:
        return len(word) > len("--") and word.startswith("--") and _flag(word) not in self._option_string_actions

    def _refuse(self, unknown: Sequence[str]) -> NoReturn:
        first = _flag(unknown[0])
        close = get_close_matches(first, self._option_string_actions, n=1, cutoff=CLOSE)
        meant = "; a list has commas without blanks, and what a shell would expand stands in quotes"
        if first.startswith("-"):
            meant = f"; perhaps {close[0]} was meant" if close else ""
        self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")


def _flag(word: str) -> str:
    return word.partition("=")[0][:MOST_FLAG]


def seconds(text: str) -> float:
    """Parse a number of seconds for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= MOST_TIMEOUT_S:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds above 0 and up to {MOST_TIMEOUT_S:g}")
    return value


def first_offsets(text: str) -> dict[int, int]:
    """Parse `0:50,3:17`. Raises ArgumentTypeError."""
    try:
        pairs = [part.split(":") for part in text.split(",")]
        firsts = {int(partition): int(offset) for partition, offset in pairs}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of partitions and offsets like 0:50,3:17") from None
    if min(*firsts, *firsts.values()) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} holds a negative number")
    return firsts


class ShowVersion(argparse.Action):
    """`--version`; the version is looked up only when asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="show the version and exit")

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Print it and exit with 0."""
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  # see the package

        del namespace, values, option_string
        try:
            number = version("twinlog")
        except PackageNotFoundError:
            number = "(not installed)"
        print(f"twinlog {number}")
        parser.exit(SUCCESS)


def note(sentence: str) -> None:
    """Tell something that is no failure, beside the command's output."""
    print(sentence, file=sys.stderr)


def settings_of(bootstrap: str, command_config: str | None, *, option: str = "--bootstrap-server") -> "ClientSettings":
    """Settings of the cluster that a command talks to; keys of the file that mean nothing here are named.

    `option` is what gave the addresses, for messages.
    """
    from twinlog.config.client import ClientSettings, read_client_file  # noqa: PLC0415  # see the package

    if command_config is None:
        return ClientSettings.from_properties({}, bootstrap=bootstrap, origin=option)
    settings = read_client_file(command_config, bootstrap=bootstrap)
    if settings.unknown:
        note(f"Warning: {command_config} has keys that mean nothing here: {', '.join(settings.unknown)}")
    return settings


def guarded(command: Callable[[], int], *, prefix: str, program: str, verbose: bool, failure: int = FAILURE) -> int:
    """Run a command and turn whatever ends it into a sentence on stderr and an exit code; never a bare traceback.

    `program` is whose `--help` tells the flags; `failure` is the exit code where 1 means something else.
    """
    try:
        code = command()
        sys.stdout.flush()
        return code
    except UsageError as mistake:
        print(f"{mistake}\n{mistake.program or program} --help shows the flags.", file=sys.stderr)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; without this, ending would try to write the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:  # noqa: BLE001  # the last place where an error can still become a sentence
        _tell(error, prefix, verbose=verbose)
    return failure


def _tell(error: Exception, prefix: str, *, verbose: bool) -> None:
    if verbose:
        import traceback  # noqa: PLC0415  # see the package

        traceback.print_exception(error)
    known = isinstance(error, TwinlogError)
    sentence = str(error) if known else f"unexpected {type(error).__name__}: {error}. --verbose shows where."
    print(f"{prefix}{sentence}", file=sys.stderr)


def quiet(*, verbose: bool) -> None:
    """Keep the library's log off stderr, where a command prints sentences, unless asked for."""
    if verbose:
        logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    else:
        logging.getLogger("twinlog").addHandler(logging.NullHandler())
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)


def arguments(given: Sequence[str] | None) -> list[str]:
    """The command line after the program's name."""
    return list(sys.argv[1:] if given is None else given)
