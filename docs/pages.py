"""What the scripts that write parts of pages have in common: the marker lines of a page, and how a script is called."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).parent

END = "<!-- generated: end -->"


class PageError(Exception):
    """A page is missing, or lacks its markers; the message says what to do."""


def renewed(page: Path, begin: str, generated: str) -> str:
    """The text of ``page`` with what stands between the line ``begin`` and the next `END` made anew."""
    if not page.exists():
        raise PageError(f"{page} is missing: write what the state means, and the two marker lines.")
    text = page.read_text(encoding="utf-8")
    if text.count(begin) != 1 or text.count(END) != 1:
        raise PageError(f"{page} must have each of the two marker lines once.")
    before, rest = text.split(begin)
    return f"{before}{begin}\n\n{generated}\n\n{END}{rest.split(END)[1]}"


def run(
    description: str | None, script: str, pages: Callable[[], dict[Path, str]], arguments: list[str] | None
) -> int:
    """Write the pages, which ``pages`` gives with the text that each must have; or with --check only compare them."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a page is not current")
    check = parser.parse_args(arguments).check
    try:
        texts = pages()
    except PageError as error:
        print(error, file=sys.stderr)
        return 1
    stale = [page for page, text in texts.items() if page.read_text(encoding="utf-8") != text]
    for page in stale:
        if check:
            print(f"{page.name} is not current: run python docs/{script}", file=sys.stderr)
        else:
            page.write_text(texts[page], encoding="utf-8")
            print(f"{page.name} written")
    return 1 if check and stale else 0
