"""A program may have a module `app`: the driver's own package of that name gets out of its way."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_OWN = __name__.partition(".")[0]
_PARTS = ("driver", "model")
"""Of the driver's package: what a driver may import while a program runs."""


def is_hidden_by(paths: Sequence[str]) -> bool:
    """Whether ``paths`` have a module of the name of the driver's own package."""
    return PathFinder.find_spec(_OWN, list(paths)) is not None


def hide_own_package() -> None:
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
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Any = (),
        level: int = 0,
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
