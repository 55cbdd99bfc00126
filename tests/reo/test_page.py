"""The tables of settings and metrics that are written into the page about copies."""

import importlib.util
from pathlib import Path
from types import ModuleType

from twinlog.reo.settings import NAMES, WITHOUT_MEANING, settings_table
from twinlog.service.copy_metrics import METRICS

ROOT = Path(__file__).resolve().parents[2]


def generator() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("make_reo_page", ROOT / "scripts" / "make_reo_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_setting_and_every_metric_has_a_row() -> None:
    """With its meaning, or why it has none."""
    script = generator()
    table, metrics = script.settings(), script.metrics()
    rows = {line.split("|")[1].strip() for line in (table + "\n" + metrics).splitlines() if line.startswith("| `")}
    told = {key.name for key in settings_table()} | set(WITHOUT_MEANING)
    assert rows == {f"`{name}`" for name in told | {metric.name for metric in METRICS}}
    assert told <= set(NAMES)


def test_the_page_is_as_the_script_writes_it() -> None:
    """Each generated part; what stands around them is left alone."""
    script = generator()
    page = script.PAGE.read_text("utf-8")
    if "<!-- generated: settings -->" in page:
        assert page == script.renewed(page), "run: python scripts/make_reo_page.py"
    empty = "".join(f"<!-- generated: {name} -->old<!-- end: {name} -->\nkept\n" for name in script.PARTS)
    made = script.renewed(empty)
    assert "old" not in made.split()
    assert made.count("\nkept\n") == 2
    assert script.renewed(made) == made
