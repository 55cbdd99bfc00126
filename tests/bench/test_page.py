"""The page about performance shows the figures that are kept beside it."""

import json

from bench.page import FIGURES, PAGE, PART, PICTURE, renewed
from bench.picture import picture


def test_page_and_picture_are_current() -> None:
    """Both are what `python -m bench.page` would write now."""
    figures = json.loads(FIGURES.read_text("utf-8"))
    page = PAGE.read_text("utf-8")
    assert page == renewed(page, figures), "run: python -m bench.page"
    assert PICTURE.read_text("utf-8") == picture(figures), "run: python -m bench.page"


def test_every_generated_part_is_filled() -> None:
    """No part of the page is left without a line."""
    parts = [found[0].count("\n") for found in PART.finditer(PAGE.read_text("utf-8"))]
    assert len(parts) == 7
    assert min(parts) > 1
