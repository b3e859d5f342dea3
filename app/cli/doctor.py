"""`slotwise doctor`, whether this machine can run Slotwise and what to do if not, and `slotwise version`."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli.errors import CliError
from app.cli.options import JsonOption
from app.cli.output import is_terminal, print_json, say
from app.cli.settings import SettingsOptions
from app.durablefiles import is_open_to_others

if TYPE_CHECKING:
    from app.settings import Settings

MINIMUM_PYTHON = (3, 11)
MINIMUM_FREE_BYTES = 1 << 30
_STATE_MESSAGES = "pyspark/sql/streaming/proto/StateMessage_pb2.py"
_CODESET = "import locale; locale.setlocale(locale.LC_ALL, ''); print(locale.nl_langinfo(locale.CODESET))"
DRIVER_BYTES = 600 << 20
"""What one driver takes apart from its heap: measured, Python and JVM together, with a small heap."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the answer. ``advice`` says what to do when it is not ok; a remark may have some too."""

    name: str
    ok: bool
    found: str
    advice: str = ""


def doctor(given: SettingsOptions, as_json: JsonOption = False) -> None:
    """Check that this machine can run a server: each line says ok, or what is wrong and what to do."""
    settings = given.load()
    checks = []
    for check in run_checks(settings):
        checks.append(check)
        if not as_json:
            say(line_of(check, colour=is_terminal() and "NO_COLOR" not in os.environ))
    if as_json:
        print_json([asdict(check) for check in checks])
    problems = [check.name for check in checks if not check.ok]
    if problems:
        raise CliError(f"{len(problems)} problem(s): {', '.join(problems)}.")


def line_of(check: Check, *, colour: bool) -> str:
    word = "ok     " if check.ok else "problem"
    if colour:
        word = f"\x1b[{32 if check.ok else 31}m{word}\x1b[0m"
    advice = f"\n         -> {check.advice}" if check.advice else ""
    return f"{word}  {check.name}: {check.found}{advice}"


def run_checks(settings: Settings) -> Iterator[Check]:
    """All checks, in the order in which they matter."""
    from app.cli.cluster_checks import kubernetes_checks, standalone_checks
    from app.model.clustersettings import KUBERNETES, STANDALONE

    checks: list[Callable[[Settings], Check | None]] = [
        _python,
        _java,
        _pyspark,
        _protobuf,
        _class_data_archive,
        _data_dir,
        _jobs_dir,
        _locale,
        _disk,
        _memory,
        _port,
        _database,
    ]
    for check in checks:
        found = check(settings)
        if found is not None:
            yield found
    if settings.cluster_kind == KUBERNETES:
        yield from kubernetes_checks(settings)
    if settings.cluster_kind == STANDALONE:
        yield from standalone_checks(settings)


def _python(_: Settings) -> Check:
    version = ".".join(str(part) for part in sys.version_info[:3])
    needed = ".".join(str(part) for part in MINIMUM_PYTHON)
    return Check(
        "Python",
        sys.version_info >= MINIMUM_PYTHON,
        f"{version}, {sys.executable}",
        "" if sys.version_info >= MINIMUM_PYTHON else f"Install Python {needed} or newer.",
    )


def _java(_: Settings) -> Check:
    from app.cluster.java import JavaNotUsable, usable_java

    try:
        java = usable_java()
        return Check("Java", True, f"{java.version}, {java.command}")
    except JavaNotUsable as error:
        return Check("Java", False, "not usable", str(error))


def _pyspark(_: Settings) -> Check:
    try:
        spark = importlib.metadata.distribution("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return Check(
            "PySpark", False, "not installed", "Install it beside Slotwise: uv sync, or pip install pyspark."
        )
    place = Path(str(spark.locate_file("pyspark")))
    if not (place / "jars").is_dir():
        return Check(
            "PySpark", False, f"{spark.version} without jars, {place}", "Install it again: it is incomplete."
        )
    return Check("PySpark", True, f"{spark.version}, {place}")


def _protobuf(_: Settings) -> Check | None:
    """PySpark does not ask for this package, and its transformWithState ends without a word if it is not there."""
    try:
        messages = Path(str(importlib.metadata.distribution("pyspark").locate_file(_STATE_MESSAGES)))
        made_for = re.search(
            r"^# Protobuf Python Version: (\d+)\.(\d+)\.(\d+)$", messages.read_text("utf-8"), re.M
        )
    except (importlib.metadata.PackageNotFoundError, OSError):
        return None
    if made_for is None:
        return None
    needed = tuple(map(int, made_for.groups()))
    wanted = f"protobuf>={'.'.join(made_for.groups())},<{needed[0] + 2}"
    advice = f"Install it beside PySpark: pip install '{wanted}'. Jobs with transformWithState need it."
    try:
        found = importlib.metadata.version("protobuf")
    except importlib.metadata.PackageNotFoundError:
        return Check("protobuf", False, "not installed", advice)
    numbers = tuple(map(int, re.findall(r"\d+", found)[:3]))
    fits = needed <= numbers < (needed[0] + 2,)
    return Check("protobuf", fits, found, "" if fits else advice)


def _class_data_archive(settings: Settings) -> Check:
    from app.cluster.appcds import ArchiveBuilder, default_cache_dir
    from app.cluster.java import JavaNotUsable, usable_java

    name = "class data archive"
    if not settings.appcds:
        return Check(name, True, "switched off (appcds = false)")
    try:
        path = ArchiveBuilder(settings.cache_dir or default_cache_dir(), usable_java()).path
    except (JavaNotUsable, importlib.metadata.PackageNotFoundError):
        return Check(name, True, "cannot be looked for without Java and PySpark")
    if path.exists():
        return Check(name, True, f"{path}, {path.stat().st_size >> 20} MiB")
    return Check(
        name,
        True,
        "not built yet",
        "Nothing to do: the server builds it, and drivers start slower until then.",
    )


def _data_dir(settings: Settings) -> Check:
    return _directory("data directory", settings.data_dir, "--data-dir")


def _jobs_dir(settings: Settings) -> Check | None:
    """With a cluster the files of jobs are for executors too."""
    if settings.jobs_dir is not None:
        return _directory("jobs directory", settings.jobs_dir, "jobs_dir")
    if settings.cluster_kind == "embedded":
        return None
    advice = "If executors run on other hosts, set jobs_dir to a directory that all of them see under the same path."
    return Check("jobs directory", True, f"{settings.place_of_jobs}, in the data directory", advice)


def _directory(name: str, place: Path, setting: str) -> Check:
    existing = next(parent for parent in (place, *place.parents) if parent.exists())
    if not existing.is_dir():
        return Check(name, False, f"{existing} is not a directory", f"Give another one with {setting}.")
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        advice = f"Make it writable for this user, or give another one with {setting}."
        return Check(name, False, f"{existing} cannot be written to: {error.strerror}", advice)
    if place == existing and is_open_to_others(place):
        found = f"everyone on this host can look into {place}, where passwords of jobs are"
        return Check(name, False, found, f"Run: chmod o-rwx {place}")
    return Check(name, True, str(place) if place == existing else f"{place} (will be made)")


def _locale(settings: Settings) -> Check:
    """Whether server, drivers and their JVMs write one path in the same way."""
    from app.cluster.environments import UTF8_LOCALE, inherited_environment

    encoding = sys.getfilesystemencoding()
    if encoding != "utf-8":
        advice = f"Start the server with LC_ALL={UTF8_LOCALE}, as drivers do."
        return Check("locale", False, f"this process writes paths in {encoding}, not in UTF-8", advice)
    for place in (settings.data_dir, settings.place_of_jobs):
        try:
            str(place).encode()
        except UnicodeEncodeError:
            found = f"the name of {str(place)!a} is not UTF-8"
            return Check("locale", False, found, "Give the directory another name: Java cannot open it.")
    environment = inherited_environment()
    told = subprocess.run(
        [sys.executable, "-c", _CODESET], env=environment, capture_output=True, text=True, check=False
    )
    if told.stdout.strip().upper() != "UTF-8":
        found = f"there is no locale {UTF8_LOCALE} on this host, which drivers are to have"
        return Check(
            "locale", False, found, "Install it, or start the server with a UTF-8 locale that is there."
        )
    mine, theirs = os.environ.get("LC_ALL"), environment.get("LC_ALL")
    return Check("locale", True, "UTF-8" if mine == theirs else f"not UTF-8 here; drivers get {UTF8_LOCALE}")


def _disk(settings: Settings) -> Check:
    existing = next(parent for parent in (settings.data_dir, *settings.data_dir.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    enough = free >= MINIMUM_FREE_BYTES
    advice = (
        "" if enough else "Free at least 1 GiB, or give a data directory on another disk with --data-dir."
    )
    return Check("disk", enough, f"{free / (1 << 30):.1f} GiB free at {existing}", advice)


def _memory(settings: Settings) -> Check:
    import psutil

    available = psutil.virtual_memory().available
    needed = (1 + settings.warm_drivers) * (DRIVER_BYTES + (settings.driver_memory_mb << 20))
    enough = available >= needed
    gib = 1 << 30
    found = f"{available / gib:.1f} GiB available, {needed / gib:.1f} GiB for a job and its warm drivers"
    advice = "" if enough else "Set warm_drivers to 0 or driver_memory_mb lower, or free memory."
    return Check("memory", enough, found, advice)


def _port(settings: Settings) -> Check:
    name = f"port {settings.port}"
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            advice = "If a Slotwise server runs there, all is well; else choose another port with --port."
            return Check(name, False, f"cannot be listened on at {settings.host}: {error.strerror}", advice)
    return Check(name, True, f"free at {settings.host}")


def _database(settings: Settings) -> Check | None:
    if settings.database_url is None:
        return Check("database", True, f"SQLite, {settings.data_dir / 'slotwise.db'}")
    from sqlalchemy import create_engine, text
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    from app.store.engine import shown_url

    try:
        url = make_url(settings.database_url)
    except ArgumentError:
        return Check(
            "database", False, "database_url is not an SQLAlchemy URL", "postgresql+psycopg://user@host/name"
        )
    shown = shown_url(url)
    try:
        engine = create_engine(
            url, connect_args={"connect_timeout": 5} if url.drivername.startswith("postg") else {}
        )
        with engine.connect() as connection:
            connection.execute(text("SELECT 1"))
    except (SQLAlchemyError, ImportError) as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        return Check(
            "database", False, f"{shown} does not answer: {reason}", "Start it, or correct database_url."
        )
    return Check("database", True, f"{shown} answers")


def version(as_json: JsonOption = False) -> None:
    """Print the versions of Slotwise, Python and PySpark."""
    found = {
        "slotwise": _version_of("slotwise"),
        "python": sys.version.split()[0],
        "pyspark": _version_of("pyspark"),
    }
    if as_json:
        print_json(found)
    else:
        spark = found["pyspark"] or "not installed"
        say(f"slotwise {found['slotwise']} (Python {found['python']}, PySpark {spark})")


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
