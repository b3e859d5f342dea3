"""Runs a script as ``python script.py args...`` would: as `__main__`, in the thread that calls.

It may have a module `app`: the driver's own package of that name gets out of its way.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import os
import pkgutil
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from app.driver.failures import Failure
from app.driver.program.places import Places, failure_of
from app.driver.vertices import Functions
from app.model.jobgraph import ProgramSpec

_LIBRARIES = ("py4j", "pyspark")
_OWN = __name__.partition(".")[0]
_PARTS = ("driver", "model")
"""Of the driver's package: what a driver may import while a program runs."""


def run_program(
    program: ProgramSpec, artifacts_dir: Path, artifacts: Sequence[str], places: Places
) -> Failure | None:
    """Run ``program`` and its threads to the end. Why it failed; None if it ended well. ``places`` has the place.

    What it leaves behind in this process stays: its module is `__main__` from here on, so that its functions are
    pickled by value also when Spark needs them later.
    """
    before = set(threading.enumerate())
    try:
        module, code = _prepare(program, artifacts_dir, artifacts)
        exec(code, module.__dict__)  # noqa: S102 - this is what the job is
        lines = Path(str(module.__file__)).read_bytes().count(b"\n") + 1
        places.end = f"{program.script}, line {lines}"
    except BaseException as error:  # a program may end in any way, sys.exit included
        places.end = places.of_error(error)
        failure = failure_of(error, places)
        if failure is not None:
            return failure
    finally:
        _flush()
    _join_threads(before)
    _flush()
    return None


def _prepare(program: ProgramSpec, artifacts_dir: Path, artifacts: Sequence[str]) -> tuple[ModuleType, Any]:
    """The module of the program and its code, with everything of the process as Python would set it."""
    functions = Functions(artifacts_dir, tuple(artifacts))
    functions.install()
    if PathFinder.find_spec(_OWN, list(functions.paths)) is not None:
        _hide_own_package()
    script = os.path.abspath(artifacts_dir / program.script)
    sys.argv = [script, *program.args]
    # Its lines are to be in the log when they are printed, not when a buffer is full.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)
    # The driver's own input has its assignments.
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    module = ModuleType("__main__")
    module.__dict__.update(__file__=script, __builtins__=__builtins__, __cached__=None, __spec__=None)
    sys.modules["__main__"] = module
    importlib.invalidate_caches()
    return module, compile(Path(script).read_bytes(), script, "exec", dont_inherit=True)


def _join_threads(before: set[threading.Thread]) -> None:
    """Python ends when the last thread has ended that is no daemon."""
    while True:
        left = [each for each in threading.enumerate() if each not in before and is_of_program(each)]
        if not left:
            return
        left[0].join()


def is_of_program(thread: threading.Thread) -> bool:
    """Whether a thread keeps Python alive and is not one of PySpark's."""
    module = getattr(getattr(thread, "_target", None), "__module__", None) or type(thread).__module__
    return (
        thread is not threading.current_thread()
        and not thread.daemon
        and not str(module).startswith(_LIBRARIES)
    )


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # The program may have closed it.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def _hide_own_package() -> None:
    """Let `import app` mean the program's from here on, but in the driver's own code."""
    _import_all()
    own = {
        name: module for name, module in sys.modules.items() if name == _OWN or name.startswith(f"{_OWN}.")
    }
    directory = str(Path(__file__).resolve().parents[2])
    for name in own:
        del sys.modules[name]
    usual = builtins.__import__

    def import_module(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> ModuleType:
        if level == 0 and name in own and str((globals or {}).get("__file__", "")).startswith(directory):
            return own[name] if fromlist else own[_OWN]
        return usual(name, globals, locals, fromlist, level)

    builtins.__import__ = import_module


def _import_all() -> None:
    root = sys.modules[_OWN]
    for part in _PARTS:
        package = importlib.import_module(f"{_OWN}.{part}")
        for found in pkgutil.walk_packages(package.__path__, f"{root.__name__}.{part}."):
            if not found.name.endswith("__main__"):
                # Some need what an environment may lack (pyarrow); a program does not use these.
                with contextlib.suppress(ImportError):
                    importlib.import_module(found.name)
