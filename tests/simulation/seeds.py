"""Runs the world of a seed from its beginning to its end."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import warnings
from pathlib import Path
from unittest import mock

import structlog

from tests.simulation.database import database
from tests.simulation.members import MembersScenario
from tests.simulation.plane import hook_effects
from tests.simulation.programs import ENDED_KEPT, grows
from tests.simulation.scenario import Outcome, Scenario
from tests.simulation.virtual_time import Deadlock, VirtualTimeLoop

_WITH_MEMBERS = 5
"""Of eight worlds in a row, the one in which several control planes share the jobs."""


def has_members(seed: int) -> bool:
    """Whether several control planes share the jobs in the world of ``seed``."""
    return seed % 8 == _WITH_MEMBERS


def few_are_kept(seed: int) -> contextlib.AbstractContextManager[object]:
    """Of queries that have ended fewer are kept where there are any, so that some are forgotten."""
    if not grows(seed):
        return contextlib.nullcontext()
    return mock.patch("app.scheduler.adaptive.growth.ENDED_KEPT", ENDED_KEPT)


def run_seed(seed: int, *, tracing: bool = False) -> Outcome:
    """Run one seed. Equal seeds give equal runs, as long as PYTHONHASHSEED is equal too."""
    base = database()
    base.reset()
    directory = Path(tempfile.mkdtemp(prefix="seed-", dir=base.directory))
    unhook = hook_effects()
    quiet_logs = structlog.get_config()
    kind = MembersScenario if has_members(seed) else Scenario
    loop = kind.loop_type()
    try:
        asyncio.set_event_loop(loop)
        with warnings.catch_warnings(), kind.around(), few_are_kept(seed):
            warnings.simplefilter("ignore", ResourceWarning)
            return loop.run_until_complete(kind(seed, directory, tracing).run())
    finally:
        structlog.configure(**quiet_logs)
        _drop(loop)
        asyncio.set_event_loop(None)
        unhook()
        shutil.rmtree(directory, ignore_errors=True)


def _drop(loop: VirtualTimeLoop) -> None:
    loop.set_exception_handler(lambda _loop, _context: None)
    for task in asyncio.all_tasks(loop):
        task.cancel()
    with contextlib.suppress(Deadlock):
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
