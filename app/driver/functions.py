"""The user's Python functions: found in the job's artifacts, checked, and named in errors."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.driver.failures import DriverError, one_line


class Functions:
    """Resolves ``module:function`` in the artifacts of one attempt."""

    def __init__(self, artifacts_dir: Path, artifacts: tuple[str, ...]) -> None:
        archives = [
            str(artifacts_dir / name) for name in artifacts if name.endswith((".zip", ".whl", ".egg"))
        ]
        self.paths = (str(artifacts_dir), *archives)
        self.files = tuple(artifacts_dir / name for name in artifacts)
        self._found: dict[str, Callable[..., Any]] = {}

    def install(self) -> None:
        """Put the artifacts first on the path of this process.

        Modules that an earlier attempt of the job imported here stay: artifacts do not change once submitted.
        """
        for path in self.paths:
            if path in sys.path:
                sys.path.remove(path)
        sys.path[:0] = self.paths
        importlib.invalidate_caches()

    def __call__(self, entry: str) -> Callable[..., Any]:
        """The function that ``entry`` names.

        Raises:
            DriverError: it is not there, or importing its module failed.
        """
        if entry not in self._found:
            self._found[entry] = self._load(entry)
        return self._found[entry]

    def _load(self, entry: str) -> Callable[..., Any]:
        module_name, _, function_name = entry.partition(":")
        try:
            module = importlib.import_module(module_name)
        except BaseException as error:  # a module may do anything when it is imported, sys.exit included
            if isinstance(error, KeyboardInterrupt):
                raise
            what = one_line(f"{type(error).__name__}: {error}")
            raise DriverError(f"The module {module_name} of {entry} cannot be imported: {what}") from error
        function = getattr(module, function_name, None)
        if function is None:
            raise DriverError(
                f"The module {module_name} has no function {function_name}, which {entry} names."
            )
        if not callable(function):
            raise DriverError(f"What {entry} names is not a function but a {type(function).__name__}.")
        return function  # type: ignore[no-any-return]
