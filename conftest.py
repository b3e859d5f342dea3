"""Marks tests with the layer that their directory names, runs the cheap layers first, and says what was not tested."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent / "tests"
LAYERS = ("unit", "contract", "simulation", "integration", "acceptance")
NOT_TESTED = ("NOT TESTED ON POSTGRESQL", "NOT TESTED IN A BROWSER")
_SKIPPED = pytest.StashKey[dict[str, int]]()


def _layer(item: pytest.Item) -> str | None:
    if not item.path.is_relative_to(TESTS):
        return None
    first = item.path.relative_to(TESTS).parts[0]
    return first if first in LAYERS else None


def pytest_itemcollected(item: pytest.Item) -> None:
    layer = _layer(item)
    if layer is not None:
        item.add_marker(layer)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """By cost. The sort is stable: within a layer the order is pytest's."""

    def cost(item: pytest.Item) -> int:
        layer = _layer(item)
        return -1 if layer is None else LAYERS.index(layer)

    items.sort(key=cost)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    texts = [str(report.longrepr) for report in skipped]
    config.stash[_SKIPPED] = {what: sum(what in text for text in texts) for what in NOT_TESTED}


def pytest_unconfigure(config: pytest.Config) -> None:
    """A run without PostgreSQL or a browser may pass on a developer's machine, but its very last lines say so."""
    for what, skipped in config.stash.get(_SKIPPED, {}).items():
        if skipped:
            print(f"!!!! {what}: {skipped} tests were skipped")
