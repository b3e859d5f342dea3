"""The command `slotwise`, except that the invariants of jobs are checked after each step."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

import tests.checked_steps  # noqa: E402, F401
from app.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
