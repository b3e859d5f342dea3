"""The driver program, except that it can be killed at the points of `driver_points.py`. Started by the server under
test in place of `python -m app.driver`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[2])

from app.driver.process import DriverProcess, main  # noqa: E402
from tests.acceptance.kills import DRIVER_PID  # noqa: E402

if __name__ == "__main__":
    # Its Python workers and planners inherit it from the JVM.
    os.environ[DRIVER_PID] = str(os.getpid())
    run_attempt = DriverProcess._run_attempt
    installed = False

    def _run_attempt(self: DriverProcess, assignment: Path) -> Any:
        global installed
        if not installed:
            # Not earlier: it imports PySpark, which the driver does while its JVM starts.
            from tests.acceptance import driver_points

            driver_points.install()
            installed = True
        return run_attempt(self, assignment)

    DriverProcess._run_attempt = _run_attempt  # type: ignore[method-assign]
    sys.exit(main())
