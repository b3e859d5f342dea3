"""The driver program, except that it can be killed at the points of `driver_points.py`. Started by the server under
test in place of `python -m app.driver`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[2])

from app.driver.process import DriverProcess, main  # noqa: E402
from app.driver.rope import Rope  # noqa: E402
from app.model.jobgraph import JobGraph  # noqa: E402
from app.model.protocol import DriverSpec  # noqa: E402
from tests.acceptance.kills import DRIVER_PID  # noqa: E402

if __name__ == "__main__":
    # Its Python workers and planners inherit it from the JVM.
    os.environ[DRIVER_PID] = str(os.getpid())
    attempt_of = DriverProcess._attempt_of
    installed = False

    def _attempt_of(self: DriverProcess, spec: DriverSpec, graph: JobGraph) -> Any:
        global installed
        if not installed:
            # Not earlier: it imports PySpark, which the driver does while its JVM starts.
            from tests.acceptance import driver_points

            driver_points.install()
            installed = True
        return attempt_of(self, spec, graph)

    DriverProcess._attempt_of = _attempt_of  # type: ignore[method-assign]
    sys.exit(main(Rope()))
