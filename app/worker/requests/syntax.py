"""Syntax check of a script in a separate process, without running it: the script may crash this process."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

_COMPILE: Final = """
import sys
try:
    compile(sys.stdin.buffer.read(), sys.argv[1], "exec", dont_inherit=True)
except SyntaxError as error:
    print(f"{error.lineno or 1} {type(error).__name__}: {error.msg}")
except ValueError as error:
    print(f"1 {error}")  # NUL, before Python 3.11.4
"""
_LIMIT_S: Final = 20.0


def syntax_fault(script: str, content: bytes) -> str | None:
    """What is wrong with ``content``, in a sentence with file and line; None if nothing is, or it cannot be told."""
    command = [sys.executable, "-I", "-W", "ignore", "-c", _COMPILE, script]
    try:
        ended = subprocess.run(command, input=content, capture_output=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return None
    line, _, what = ended.stdout.decode(errors="replace").strip().partition(" ")
    if not what:
        return None
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"{script}, line {line}: {what}; the program runs with Python {python}."
