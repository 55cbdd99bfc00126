"""The documentation is current: generated parts, flags, links."""

import argparse
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

from twinlog.cli import mirrors_parser, verify
from twinlog.config.mirror import MirrorConfig

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]


def generator() -> ModuleType:
    """The script that writes the generated parts."""
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "scripts" / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_parts_of_the_reference_are_current() -> None:
    """The committed page is what the generator would write now."""
    page = (DOCS / "reference.md").read_text("utf-8")
    assert page == generator().renewed(page), "run: python scripts/make_reference.py"


def test_keys_without_effect_are_marked_as_such() -> None:
    """A key that nothing but the configuration itself reads has one possible value, and is marked so."""
    folder = ROOT / "src" / "twinlog"
    code = "\n".join(
        path.read_text("utf-8") for path in folder.rglob("*.py") if path.relative_to(folder).parts[0] != "config"
    )
    own = {f.name: f.metadata["key"].name for f in fields(MirrorConfig) if "key" in f.metadata}
    through_a_method = {
        "topic_properties_exclude": "copies_topic_property",
        "groups_include": "syncs_group",
        "groups_exclude": "syncs_group",
        "support_unclean_leader_election": "follows_truncated",
    }
    unread = {key for name, key in own.items() if not re.search(rf"\.{through_a_method.get(name, name)}\b", code)}
    assert unread == generator().ONE_VALUE


def flags(parser: argparse.ArgumentParser) -> set[str]:
    """All long flags of a parser."""
    return {option for action in parser._actions for option in action.option_strings if option.startswith("--")}


def verify_parser() -> argparse.ArgumentParser:
    """The parser of `twinlog verify`."""
    subparsers = argparse.ArgumentParser().add_subparsers()
    verify.add_parser(subparsers)
    return subparsers.choices["verify"]


@pytest.mark.parametrize(
    ("section", "parser"),
    [("kafka-mirrors", mirrors_parser.build("kafka-mirrors")), ("twinlog verify", verify_parser())],
    ids=["kafka-mirrors", "verify"],
)
def test_every_flag_is_in_the_reference_and_nothing_else_is(section: str, parser: argparse.ArgumentParser) -> None:
    """The sections of the reference name just the flags that the parsers take."""
    page = (DOCS / "reference.md").read_text("utf-8")
    text = page.split(f"\n## {section}\n")[1].split("\n## ")[0]
    documented = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert documented | {"--help", "--version"} == flags(parser) | {"--help", "--version"}


def links() -> Iterator[tuple[Path, str]]:
    """All links of all pages that lead to a file of the project or to a heading."""
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
            if "://" not in target:
                yield page, target


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings get."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    """Every link to a file or a heading of the project finds it."""
    broken = []
    for page, target in links():
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken, "\n" + "\n".join(broken)
