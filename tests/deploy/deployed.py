"""Reads what containers are made and run from: the Dockerfile, compose.yaml, and the Kubernetes manifests."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from twinlog.cli import mirrors_parser, reo, twinlog
from twinlog.cli.common import Parser

ROOT: Final = Path(__file__).resolve().parents[2]
DOCKERFILE: Final = ROOT / "Dockerfile"
COMPOSE: Final = ROOT / "compose.yaml"
MANIFESTS: Final = ROOT / "deploy" / "kubernetes"
PRODUCTS: Final = ("worker", "reo")


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, each as (name, rest), with continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text("utf-8"), flags=re.MULTILINE).replace("\\\n", " ")
    words = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    return [(name.upper(), " ".join(rest.split())) for name, rest in words]


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, by its name."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, rest in instructions():
        if name == "FROM":
            found[rest.rpartition(" ")[2]] = []
        if found:
            list(found.values())[-1].append((name, rest))
    return found


def entry_point(stage: str) -> list[str]:
    """The words that a stage's image begins its command line with."""
    words: list[str] = json.loads(dict(stages()[stage])["ENTRYPOINT"])
    return words


def compose() -> dict[str, Any]:
    """What compose.yaml says, its anchors resolved."""
    told: dict[str, Any] = yaml.safe_load(COMPOSE.read_text("utf-8"))
    return told


def manifests(product: str) -> list[dict[str, Any]]:
    """The manifests that a product's kustomization lists."""
    folder = MANIFESTS / product
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))
    return [found for name in kustomization["resources"] for found in documents(folder / name)]


def documents(path: Path) -> Iterator[dict[str, Any]]:
    """The documents of a YAML file."""
    yield from yaml.safe_load_all(path.read_text("utf-8"))


def of_kind(product: str, kind: str) -> list[dict[str, Any]]:
    """The manifests of a kind."""
    return [found for found in manifests(product) if found["kind"] == kind]


def deployment(product: str) -> dict[str, Any]:
    """The one Deployment."""
    (found,) = of_kind(product, "Deployment")
    return found


def pod(product: str) -> dict[str, Any]:
    """The pod that the Deployment makes."""
    found: dict[str, Any] = deployment(product)["spec"]["template"]["spec"]
    return found


def container(product: str) -> dict[str, Any]:
    """Its one container."""
    (found,) = pod(product)["containers"]
    return dict(found)


def parsed(words: list[str]) -> Any:
    """What the program that is named first makes of a command line; SystemExit or UsageError where it refuses it."""
    program, *rest = words
    if program == "kafka-mirrors":
        given = mirrors_parser.build("kafka-mirrors").parse_args(rest)
        mirrors_parser.check(given)
        return given
    if program == "kafka-reo":
        parser = Parser(prog=program)
        reo._fill(parser)
        return parser.parse_args(rest)
    assert program == "twinlog"
    return twinlog._fill(Parser(prog=program), rest).parse_args(rest)
