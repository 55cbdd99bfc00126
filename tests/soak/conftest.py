"""Prints at the end of the run what the long tests did, so that it can be quoted."""

import pytest
from tests.soak.soaking import FIGURES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each long test."""
    if FIGURES:
        terminalreporter.section("long fault runs")
        for line in FIGURES:
            terminalreporter.write_line(line)
