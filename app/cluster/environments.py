"""The Pythons of drivers: that of the server, or that of a job's environment, which is checked before its use."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import locale
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, Any, Final

from app.cluster.driveruser import DriverUser
from app.cluster.ports import DriverLaunchError
from app.model.environment import SPARK_LINES, python_fault, spark_fault
from app.settings import ENV_PREFIX

UTF8_LOCALE: Final = "C.UTF-8"
_PROBE_S = 60
_KEPT_BYTES = 64 << 10
# It has to be read by any Python, however old.
_PROBE = """
import json, os, sys
found = {"version": list(sys.version_info[:3]), "spark": None, "home": None}
try:
    import importlib.util
    spec = importlib.util.find_spec("pyspark")
    home = os.path.dirname(spec.origin)
    if os.path.isdir(os.path.join(home, "jars")):
        found["home"] = home
    names = {}
    with open(os.path.join(home, "version.py")) as file:
        exec(file.read(), names)
    found["spark"] = names["__version__"]
except Exception:
    pass
print("\\n" + json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python that drivers can run on. ``spark_home`` has the jars of its PySpark."""

    python: str
    python_version: str
    spark_version: str
    spark_home: str


def own_environment() -> Environment:
    """That of the server."""
    spark = importlib.metadata.distribution("pyspark")
    version = ".".join(map(str, sys.version_info[:3]))
    return Environment(sys.executable, version, spark.version, str(spark.locate_file("pyspark")))


def inherited_environment() -> dict[str, str]:
    """All but the settings of the server: the code of jobs runs in these processes, and the password of the database
    is none of its business. Its locale is `UTF8_LOCALE` if Java would write paths in another encoding than UTF-8."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    return own if _writes_utf8() else {**own, "LC_ALL": UTF8_LOCALE}


@lru_cache
def _writes_utf8() -> bool:
    """Whether programs that are told the locale of this process take it: one that is not installed is none for Java."""
    before = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, "")
        return locale.nl_langinfo(locale.CODESET).upper() == "UTF-8"
    except locale.Error:
        return False
    finally:
        locale.setlocale(locale.LC_ALL, before)


class EnvironmentRefused(DriverLaunchError):
    """No driver can run in an environment; another try would be told so again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, recoverable=False)


class Pythons:
    """Pythons that were looked at; one is looked at again when its libraries were changed. ``user``: whom drivers run
    as.

    What a job names is run as that user and never with the rights of the server.
    """

    def __init__(self, user: DriverUser | None = None) -> None:
        self._user = user
        self._known: dict[str, tuple[Environment, object]] = {}

    async def look(self, python: str, place: str = "environment.python") -> Environment:
        """
        Raises:
            EnvironmentRefused: no driver can run on it; the sentence begins with ``place``.
        """
        known = self._known.get(python)
        if known is not None and known[1] == await asyncio.to_thread(_signs, known[0]):
            return known[0]
        found = await asyncio.to_thread(self._look, python, place)
        self._known[python] = found, await asyncio.to_thread(_signs, found)
        return found

    def _look(self, python: str, place: str) -> Environment:
        told = _answer(python, place, self._user)
        version = tuple(map(int, told["version"]))
        if fault := python_fault(version):
            raise EnvironmentRefused(f"{place}: {python} {fault}.")
        if told["spark"] is None or told["home"] is None:
            what = "PySpark" if told["spark"] is None else "jars of PySpark (pyspark-client has none)"
            raise EnvironmentRefused(
                f"{place}: {python} has no {what}: install pyspark of {', '.join(SPARK_LINES[:-1])} or "
                f"{SPARK_LINES[-1]} there."
            )
        if fault := spark_fault(told["spark"]):
            raise EnvironmentRefused(f"{place}: {python} {fault}.")
        return Environment(python, ".".join(map(str, version)), told["spark"], told["home"])


def _signs(environment: Environment) -> object:
    """What is other than before when an environment was changed."""
    try:
        python = os.stat(environment.python)
        spark = os.stat(os.path.join(environment.spark_home, "version.py"))
        # Where its other libraries are, too.
        libraries = os.stat(os.path.dirname(environment.spark_home))
    except OSError:
        return None
    found = [(each.st_ino, each.st_mtime_ns) for each in (python, spark, libraries)]
    return tuple(found)


def _answer(python: str, place: str, user: DriverUser | None) -> dict[str, Any]:
    """What a Python says of itself.

    Raises:
        EnvironmentRefused: it says nothing.
    """
    who = "the server runs as" if user is None else "drivers run as"
    try:
        status, output = run_bounded([python, "-c", _PROBE], _PROBE_S, user)
    except FileNotFoundError:
        raise EnvironmentRefused(f"{place}: there is no file {python} on the host of the server.") from None
    except PermissionError:
        raise EnvironmentRefused(f"{place}: the user that {who} may not execute {python}.") from None
    except subprocess.TimeoutExpired:
        raise EnvironmentRefused(f"{place}: {python} has not answered within {_PROBE_S} s.") from None
    except OSError as error:
        raise EnvironmentRefused(f"{place}: {python} cannot be executed: {error.strerror}.") from None
    try:
        told = json.loads(output.strip().rpartition("\n")[2])
        if isinstance(told, dict) and {"version", "spark", "home"} <= told.keys():
            return told
    except ValueError:
        pass
    last = output.strip().rpartition("\n")[2][:150]
    raise EnvironmentRefused(
        f"{place}: {python} does not answer as a Python does: it ended with exit status {status}"
        f"{' and said: ' + last if last else ''}."
    )


def run_bounded(
    command: list[str],
    timeout_s: float,
    user: DriverUser | None,
    *,
    cwd: str = "/",
    extra: Mapping[str, str] | None = None,
    stdin: IO[bytes] | int = subprocess.DEVNULL,
) -> tuple[int, str]:
    """Run what a job asks for, as ``user`` and with the environment of its drivers. The exit status, and the end of
    what it said: it may say more than there is memory for.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it was ended.
    """
    process = subprocess.Popen(
        command,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        cwd=cwd,
        env={**inherited_environment(), **(user.environment() if user is not None else {}), **(extra or {})},
        **(user.popen() if user is not None else {}),
    )
    assert process.stdout is not None
    expired = threading.Event()

    def end() -> None:
        expired.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(timeout_s, end)
    timer.start()
    kept = b""
    try:
        with process.stdout as output:
            while chunk := os.read(output.fileno(), _KEPT_BYTES):
                kept = (kept + chunk)[-_KEPT_BYTES:]
        status = process.wait()
    finally:
        timer.cancel()
    if expired.is_set():
        raise subprocess.TimeoutExpired(command, timeout_s)
    return status, kept.decode(errors="replace")
