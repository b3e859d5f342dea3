"""The directories of a server: created and checked before anything is started, with their access rights."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import structlog

from app.cluster.driveruser import DriverUser, DriverUserError
from app.durablefiles import is_open_to_others, make_private
from app.model.resultsurl import is_local
from app.settings import Settings
from app.store.engine import parse_url
from app.worker.job.files import check_links

log = structlog.get_logger()


class DirectoryRefused(Exception):
    """A directory cannot be used; the message is a sentence for people."""


def prepare(settings: Settings) -> Path:
    """Make the data directory, and the one for results if it is on this host. Returns the data directory.

    Raises:
        DirectoryRefused: one of them cannot be used.
    """
    _prepare_data(settings.data_dir)
    if settings.results_url is not None and is_local(settings.results_url):
        _prepare_results(Path(settings.results_url))
    return settings.data_dir


def _prepare_data(data_dir: Path) -> None:
    try:
        make_private(data_dir)
        probe = data_dir / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise DirectoryRefused(
            f"The data directory {data_dir} cannot be used: {error.strerror}. Choose another one with --data-dir."
        ) from error
    if is_open_to_others(data_dir):
        log.warning(
            "everyone on this host can look into the data directory, where passwords of jobs are",
            data_dir=str(data_dir),
            advice=f"chmod o-rwx {data_dir}",
        )


def _prepare_results(folder: Path) -> None:
    try:
        check_links(folder)
    except OSError as error:
        raise DirectoryRefused(
            f"results_url: the folder {folder} cannot hold results, which need new files and hard links: "
            f"{error.strerror}."
        ) from error


def driver_user(settings: Settings, run_dir: Path, cache_dir: Path, java: str) -> DriverUser | None:
    """The user that drivers run as, with the way opened to what is its; None: that of the server. With one, what this
    process makes from now on is for itself alone; drivers keep the umask that it had.

    Raises:
        DriverUserError: drivers cannot run as that user, or it could see what is the server's.
    """
    if settings.run_drivers_as is None:
        return None
    user = DriverUser.named(settings.run_drivers_as)
    user = replace(user, umask=os.umask(0o077))
    try:
        _open_to(user, settings.data_dir, settings.place_of_jobs, run_dir, cache_dir)
    except OSError as error:
        raise DriverUserError(f"run_drivers_as: the data directory cannot be opened: {error}.") from error
    database = parse_url(settings.url).path
    user.check(
        enter=(settings.place_of_jobs, run_dir),
        hide=[each for each in (settings.token_file, database) if each is not None],
        keep=[settings.data_dir, settings.place_of_jobs, run_dir, *([database.parent] if database else [])],
        java=java,
    )
    return user


def _open_to(user: DriverUser, data_dir: Path, *through: Path) -> None:
    # Of a server without this setting: it relied on the mode of the directory.
    for file in (*data_dir.iterdir(), *data_dir.glob("run*/driver-*.log")):
        if file.is_file() and not file.is_symlink():
            file.chmod(file.stat().st_mode & 0o700)
    for directory in (data_dir, *through):
        make_private(directory)
        user.let_through(directory)
