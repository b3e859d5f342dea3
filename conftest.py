"""Marks every test with the layer that its directory names, so that `pytest -m unit` runs the cheap ones only."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent / "tests"
LAYERS = frozenset({"unit", "contract", "simulation", "integration", "acceptance"})


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.path.is_relative_to(TESTS):
        layer = item.path.relative_to(TESTS).parts[0]
        if layer in LAYERS:
            item.add_marker(layer)
