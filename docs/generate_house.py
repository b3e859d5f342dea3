"""Write the picture of the house in docs/development.md: its rooms, what each is for, and who imports whom.

    python docs/generate_house.py            write it
    python docs/generate_house.py --check    say whether it is not current, and exit with 1

A room is a package of `app/`. What it is for is the first sentence of its docstring.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from pages import DOCS, PageError, renewed, run

APP = DOCS.parent / "app"
PAGE = DOCS / "development.md"
BEGIN = "<!-- generated from the imports of app/ by docs/generate_house.py: begin -->"

_SENTENCE = re.compile(r".+?\.(?=\s|$)", re.DOTALL)


def rooms(directory: Path) -> list[Path]:
    """The packages in ``directory``, by name."""
    return sorted(entry.parent for entry in directory.glob("*/__init__.py"))


def purpose(room: Path) -> str:
    """The first sentence of the docstring of a package."""
    said = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
    found = _SENTENCE.match(said)
    if found is None:
        raise PageError(
            f"{room.relative_to(APP.parent)}/__init__.py needs a docstring that says what the room is for."
        )
    return " ".join(found[0].split())


def imported(file: Path) -> Iterator[str]:
    """The modules of the project that a module imports."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"app.{name.name}" for name in node.names) if node.module == "app" else (node.module,)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def arrows() -> dict[str, set[str]]:
    """Which rooms each room imports. `main`, which puts a server together, is one too."""
    names = {room.name for room in rooms(APP)} | {"main"}
    found: dict[str, set[str]] = {name: set() for name in names}
    for name in names:
        files = [APP / "main.py"] if name == "main" else (APP / name).rglob("*.py")
        for file in files:
            for module in imported(file):
                parts = module.split(".")
                if parts[0] == "app" and len(parts) > 1 and parts[1] in names - {name}:
                    found[name].add(parts[1])
    return found


def shortest(graph: dict[str, set[str]]) -> list[tuple[str, str]]:
    """The arrows without those that a way over other rooms says already."""

    def reached(name: str) -> set[str]:
        return graph[name].union(*(reached(each) for each in graph[name]))

    return [
        (name, other)
        for name in sorted(graph)
        for other in sorted(graph[name])
        if not any(other in reached(each) for each in graph[name] - {other})
    ]


def picture() -> str:
    lines = ["```mermaid", "flowchart TD"]
    lines += [f"    {name} --> {other}" for name, other in shortest(arrows())]
    rows = []
    for room in rooms(APP):
        inner = rooms(room)
        rows.append(f"| `{room.name}/` | {purpose(room)} |")
        rows += [f"| `{room.name}/{one.name}/` | {purpose(one)} |" for one in inner]
    return "\n".join([*lines, "```", "", "| room | what it is for |", "|---|---|", *rows])


def main(arguments: list[str] | None = None) -> int:
    return run(__doc__, "generate_house.py", lambda: {PAGE: renewed(PAGE, BEGIN, picture())}, arguments)


if __name__ == "__main__":
    sys.exit(main())
