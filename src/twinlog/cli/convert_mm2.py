"""`twinlog convert-mm2`: mirror properties and commands from a properties file of MirrorMaker 2."""

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twinlog.cli.common import SUCCESS
from twinlog.config.mm2 import Converted, Flow, convert
from twinlog.config.properties import read_properties
from twinlog.errors import BadInput


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the command and its flags."""
    text = "turn a properties file of MirrorMaker 2 into mirrors"
    parser = commands.add_parser("convert-mm2", help=text, description=f"{text.capitalize()}; contacts no cluster.")
    parser.add_argument("file", metavar="FILE", help="the file that MirrorMaker 2 is started with")
    parser.add_argument("--out", metavar="DIR", default=".", help="where the files are written; default: here")
    parser.add_argument("--verbose", action="store_true", help="show where an error came from")


def run(given: argparse.Namespace) -> int:
    """Convert, write the files (none is overwritten), and print the commands and what has no counterpart."""
    converted = convert(read_properties(given.file))
    folder = Path(given.out)
    files = {_mirror_file(folder, flow): flow.mirror for flow in converted.flows}
    files |= {_client_file(folder, flow): flow.destination for flow in converted.flows}
    _write(folder, files)
    print("\n".join(_report(converted, folder)))
    return SUCCESS


def _mirror_file(folder: Path, flow: Flow) -> Path:
    return folder / f"{flow.name}.properties"


def _client_file(folder: Path, flow: Flow) -> Path:
    return folder / f"{flow.name}.destination.properties"


def _write(folder: Path, files: Mapping[Path, Mapping[str, str]]) -> None:
    there = [str(path) for path in files if path.exists()]
    if there:
        raise BadInput(f"{', '.join(there)} exists already; name another folder with --out. Nothing was written.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, settings in files.items():
            path.write_text("".join(f"{key}={_escaped(value)}\n" for key, value in settings.items()), "utf-8")
    except OSError as error:
        raise BadInput(f"{folder} cannot be written to: {error.strerror or error}.") from error


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def _report(converted: Converted, folder: Path) -> list[str]:
    lines: list[str] = []
    for flow in converted.flows:
        login = f"--bootstrap-server {flow.bootstrap} --command-config {shlex.quote(str(_client_file(folder, flow)))}"
        factor = f" --replication-factor {flow.replication_factor}" if flow.replication_factor else ""
        file = shlex.quote(str(_mirror_file(folder, flow)))
        # What a start names is mirrored beside what the mirror includes, so it may name no more than that.
        topics = shlex.quote(",".join(part.strip() for part in flow.mirror["mirror.topics.include"].split(",")))
        lines += [
            f"# {flow.name}",
            f"kafka-mirrors {login} --create --mirror {flow.name} --mirror-config {file}",
            f"kafka-mirrors {login} --start --mirror {flow.name} --topics {topics}{factor}",
            f"twinlog worker {login}",
            "",
        ]
    lines.append("# Not taken over as it is:" if converted.left else "# Everything was taken over.")
    lines += [f"#   {left.where}: {left.name}: {left.reason}" for left in converted.left]
    return lines
