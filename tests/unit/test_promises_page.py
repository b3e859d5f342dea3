"""docs/promises.md cites tests; they are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CITATION = re.compile(r"`(tests/[\w/.]+\.py)(?:::(\w+))?`")
PROMISES = 7


def test_every_cited_test_is_there() -> None:
    page = (ROOT / "docs/promises.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    assert [section[:2] for section in sections] == [f"{number}." for number in range(1, PROMISES + 1)]
    missing = []
    for section in sections:
        cited = CITATION.findall(section)
        assert cited, section
        missing += [(file, name) for file, name in cited if not is_there(ROOT / file, name)]
    assert missing == []


def is_there(file: Path, name: str) -> bool:
    if not file.is_file():
        return False
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return not name or any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name for node in tree.body
    )
