"""`checked_server.py`, except that it can be killed at the points below (`tests.acceptance.kills`).

    python tests/acceptance/server_launcher.py serve --data-dir D --slots 4 --port 0

With ACCEPTANCE_DRIVERS set, its drivers are those of `driver_launcher.py`. Nothing else differs: the points are
wrapped around the functions of app/ here, and there is no trace of them there.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)

import tests.checked_steps  # noqa: E402, F401
from app.cli import main  # noqa: E402
from app.cluster import processes  # noqa: E402
from app.cluster.embedded import EmbeddedHost  # noqa: E402
from app.cluster.processes import LocalDriver  # noqa: E402
from app.model.jobgraph import InPlace, JobVertex  # noqa: E402
from app.model.protocol import Orders, Report  # noqa: E402
from app.scheduler.adaptive.effects import Effect, SendPlan, StartAttempt  # noqa: E402
from app.scheduler.adaptive.state import JobState, Rescaling  # noqa: E402
from app.store import writer  # noqa: E402
from app.store.writes import AddRequirements, PutRescale, SaveState, UnitOfWork  # noqa: E402
from app.worker.control_plane import ControlPlane  # noqa: E402
from app.worker.job.job import Job  # noqa: E402
from app.worker.job.orders import implied_effects  # noqa: E402
from app.worker.job.persistence import JobWriter  # noqa: E402
from tests.acceptance.kills import hold, is_armed, reached  # noqa: E402

DRIVER_LAUNCHER = Path(__file__).with_name("driver_launcher.py")

_current = threading.local()


def starts_attempt(state: JobState) -> bool:
    return any(isinstance(effect, StartAttempt) for effect in implied_effects(state))


def what(units: list[UnitOfWork]) -> set[str]:
    """The kinds of transaction that tests tell apart."""
    found = set()
    for write in (write for unit in units for write in unit.writes):
        if isinstance(write, AddRequirements) and write.requirements.version > 1:
            found.add("put")
        elif isinstance(write, PutRescale) and not write.record.is_open:
            found.add("end-of-rescale")
        elif isinstance(write, SaveState) and starts_attempt(write.state):
            found.add("next-attempt")
    return found


def around_transactions() -> None:
    """``<kind>-uncommitted``: everything is written, COMMIT is not. ``<kind>-committed``: nobody knows of it yet."""
    transaction = writer.Writer._transaction
    leave = writer._Transaction.__exit__

    def _transaction(self: writer.Writer, tickets: Any) -> None:
        kinds = what([ticket.unit for ticket in tickets if ticket.unit is not None])
        _current.kinds = kinds
        try:
            transaction(self, tickets)
        finally:
            _current.kinds = set()
        for kind in kinds:
            reached(f"{kind}-committed")

    def __exit__(self: Any, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            for name in getattr(_current, "kinds", ()):
                reached(f"{name}-uncommitted")
        leave(self, kind, error, trace)

    writer.Writer._transaction = _transaction  # type: ignore[method-assign]
    writer._Transaction.__exit__ = __exit__  # type: ignore[method-assign]


def around_requests() -> None:
    before(ControlPlane, "update_requirements", lambda *_args, **_more: reached("put-received"))

    def perform(_job: Job, effect: Effect) -> None:
        if isinstance(effect, SendPlan):
            reached("plan-not-sent")

    before(Job, "perform", perform)


def around_the_driver_protocol() -> None:
    fetch = ControlPlane.driver_orders

    async def driver_orders(
        self: ControlPlane, job_id: str, *args: Any, plan: int, stop: str, **more: Any
    ) -> Orders:
        phase = self.job(job_id).state.phase
        if isinstance(phase, Rescaling) and plan == phase.target.version:
            # It asks for what comes after the plan, so it has the plan.
            reached("orders-answered")
        if stop == "boundary":
            reached("boundary-answered")
        orders = await fetch(self, job_id, *args, plan=plan, stop=stop, **more)
        if orders.plan_version != plan:
            await hold("put-answered")
        if orders.stop == "boundary":
            reached("boundary-not-answered")
        if orders.stop == "drain":
            reached("drain-not-answered")
        return orders

    ControlPlane.driver_orders = driver_orders  # type: ignore[method-assign]
    take = Job.take_down

    async def take_down(self: Job, attempt: int, reports: list[Report]) -> int:
        for report in reports:
            if report.type == "plan-applied" and isinstance(self.state.phase, Rescaling):
                if is_armed("orders-answered"):
                    await hold("orders-answered")
                reached("plan-applied-received")
            if report.type in ("stopped", "finished"):
                reached(f"{report.type}-received")
        return await take(self, attempt, reports)

    Job.take_down = take_down  # type: ignore[method-assign]
    before(ControlPlane, "driver_register", lambda *_args: reached("register-received"))


def around_starts() -> None:
    """A driver that is started: the process, its row, the job handed over."""
    after(EmbeddedHost, "acquire", "driver-acquired")
    after(JobWriter, "attempt_started", "attempt-written")
    after(LocalDriver, "assign", "handed-over")


def restart_for(name: str) -> None:
    """Vertices of this name ask for a restart of their query, as one did whose plan Spark does not follow."""

    def made(vertex: JobVertex, *args: Any, **more: Any) -> None:
        make(vertex, *args, **more)
        if vertex.name == name:
            object.__setattr__(vertex, "in_place", InPlace.QUERY_RESTART)

    make = JobVertex.__init__
    JobVertex.__init__ = made  # type: ignore[method-assign]


def before(owner: type, name: str, look: Callable[..., None]) -> None:
    function = getattr(owner, name)

    @functools.wraps(function)
    def wrapper(*args: Any, **more: Any) -> Any:
        look(*args, **more)
        return function(*args, **more)

    setattr(owner, name, wrapper)


def after(owner: type, name: str, point: str) -> None:
    function = getattr(owner, name)

    @functools.wraps(function)
    async def wrapper(*args: Any, **more: Any) -> Any:
        result = await function(*args, **more)
        reached(point)
        return result

    setattr(owner, name, wrapper)


def start_drivers_with_points() -> None:
    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        assert command[4] == "app.driver", command
        return subprocess.Popen([command[0], str(DRIVER_LAUNCHER), *command[5:]], **options)

    processes.subprocess = SimpleNamespace(Popen=start, PIPE=subprocess.PIPE)  # type: ignore[assignment]


if __name__ == "__main__":
    around_transactions()
    around_requests()
    around_the_driver_protocol()
    around_starts()
    restart_for("plain")
    if os.environ.get("ACCEPTANCE_DRIVERS"):
        start_drivers_with_points()
    sys.exit(main())
