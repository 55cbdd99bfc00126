"""Writes the generated parts of docs/reo.md: the tables of settings and metrics.

    python scripts/make_reo_page.py

A test holds the committed page against what this would write. Each part stands between two comments, which name it.
"""

# ruff: noqa: INP001, T201  (a script that people run)

import re
import sys
from pathlib import Path

from twinlog.reo.settings import WITHOUT_MEANING, environment_name, settings_table
from twinlog.service.copy_metrics import METRICS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reo.md"


def settings() -> str:
    """A row for each setting, then those that have no effect, with the reason."""
    lines = ["| Name | Type | Default | Meaning |", "|---|---|---|---|"]
    for key in settings_table():
        default = f"`{key.default}`" if key.default else ""
        allowed = "" if key.allowed.startswith("any text") else f" Allowed: {key.allowed}."
        lines.append(f"| `{key.name}` | {key.type} | {default} | {key.doc}{allowed} |".replace("\\|", "|"))
    lines += ["", "Accepted without effect, and answered with the reason:", "", "| Name | Reason |", "|---|---|"]
    lines += [f"| `{name}` | {why} |" for name, why in WITHOUT_MEANING.items()]
    example = settings_table()[0].name
    lines += ["", f"In the environment, `{example}` is `{environment_name(example)}`, and so on."]
    return "\n".join(lines)


def metrics() -> str:
    """A row for each metric of a copy."""
    lines = ["| Metric | Labels | Meaning |", "|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {labels} | {metric.doc} |")
    return "\n".join(lines)


PARTS = {"settings": settings, "metrics": metrics}


def renewed(page: str) -> str:
    """The page with its generated parts as they should be. Raises ValueError where the page lacks one."""
    for name, write in PARTS.items():
        begin, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        part = f"{begin}\n\n{write()}\n\n{end}"
        page, found = pattern.subn(lambda _match, part=part: part, page)
        if found != 1:
            raise ValueError(f"{PAGE.name} has {found} parts '{name}', not one.")
    return page


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text("utf-8")), "utf-8")
    print(f"{PAGE} is current.", file=sys.stderr)
