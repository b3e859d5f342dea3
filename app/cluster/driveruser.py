"""Drivers as another user of the operating system, so that the code of jobs cannot read what is the server's.

The server is root then. What it makes is for itself alone (its umask), but for what is opened here: the driver's user
may pass through the directories on the way to the files of jobs, and owns what drivers write. In a directory of that
user a link can stand wherever root is about to write: root makes files there anew and follows no link.
"""

from __future__ import annotations

import errno
import getpass
import grp
import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROBE_S = 60
_PROBE = """
import importlib.util, json, os, sys
need, forbidden, kept, java, temporary = json.loads(sys.argv[1])
found = ["cannot enter " + path for path in need if not os.access(path, os.X_OK)]
found += ["can read " + path for path in forbidden if os.access(path, os.R_OK)]
found += ["can write to " + path for path in kept if os.access(path, os.W_OK)]
found += ["cannot run " + java] * (not os.access(java, os.X_OK))
found += ["cannot write to " + temporary] * (not os.access(temporary, os.W_OK | os.X_OK))
found += ["cannot import " + name for name in ("app.driver", "pyspark") if importlib.util.find_spec(name) is None]
print(json.dumps(found))
"""


class DriverUserError(Exception):
    """Drivers cannot run as that user; the message is a sentence for people."""


@dataclass(frozen=True, slots=True)
class DriverUser:
    """The user that drivers run as. ``umask``: that of the files that they make."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    umask: int = 0o022

    @classmethod
    def named(cls, name: str) -> DriverUser:
        """The user of this name or number.

        Raises:
            DriverUserError: there is none, it has the rights of root, or this process may not start processes as it.
        """
        if os.geteuid() != 0:
            raise DriverUserError(
                f"run_drivers_as: the server runs as {getpass.getuser()}, and only root can start processes of another "
                "user. Start it as root, or leave the setting out and give the server a user of its own, as User= does "
                "in a unit of systemd."
            )
        try:
            found = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
        except (KeyError, OverflowError):
            raise DriverUserError(f"run_drivers_as: there is no user {name} on this host.") from None
        groups = tuple(os.getgrouplist(found.pw_name, found.pw_gid))
        if found.pw_uid == 0 or 0 in groups:
            raise DriverUserError(
                f"run_drivers_as: {name} is root, or in its group ({grp.getgrgid(0).gr_name}). Name a user without "
                "rights of its own."
            )
        return cls(found.pw_name, found.pw_uid, found.pw_gid, groups, found.pw_dir)

    def popen(self) -> dict[str, Any]:
        """What makes `subprocess.Popen` start a process of this user."""
        return {"user": self.uid, "group": self.gid, "extra_groups": self.groups, "umask": self.umask}

    def environment(self) -> dict[str, str]:
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}

    # -- the server's directories

    def check(self, *, enter: Iterable[Path], hide: Iterable[Path], keep: Iterable[Path], java: str) -> None:
        """See with the eyes of the user whether it can do what a driver must, and nothing that it must not.

        Raises:
            DriverUserError: it is not so.
        """
        java = shutil.which(java) or java
        told = json.dumps(
            [*([str(each) for each in paths] for paths in (enter, hide, keep)), java, tempfile.gettempdir()]
        )
        try:
            done = subprocess.run(
                [sys.executable, "-c", _PROBE, told],
                capture_output=True,
                text=True,
                cwd="/",
                env={**os.environ, **self.environment()},
                timeout=_PROBE_S,
                **self.popen(),
            )
            found = json.loads(done.stdout) if done.returncode == 0 else [f"cannot run {sys.executable}"]
        except (OSError, ValueError, subprocess.TimeoutExpired):
            found = [f"cannot run {sys.executable}"]
        if found:
            raise DriverUserError(
                f"run_drivers_as: the user {self.name} {', '.join(found)}. What drivers need must be where every user "
                "may read, each directory above included; files of the server must have mode 0600, directories 0700."
            )

    def let_through(self, directory: Path, *, to_list: bool = False) -> None:
        """The user may pass through a directory of the server's to files that it knows the name of, or see the names.

        Raises:
            OSError: it cannot be done, or the directory is the user's.
        """
        found = directory.stat()
        if found.st_uid == self.uid:
            # It could exchange what root is about to write to.
            raise PermissionError(
                errno.EPERM, f"It belongs to {self.name}, and should to root", str(directory)
            )
        mode = stat.S_IMODE(found.st_mode)
        wanted = stat.S_IXOTH | (stat.S_IROTH if to_list else 0)
        if mode & wanted != wanted:
            if found.st_gid != self.gid:
                # What another group was allowed is not for this one.
                mode &= ~stat.S_IRWXG
                directory.chmod(mode)
                os.chown(directory, -1, self.gid)
            directory.chmod(mode | wanted << 3)

    # -- the driver's files

    def give(self, file: Path) -> None:
        """Make a file of the server's the user's, wherever it lies; what is none is left alone.

        Raises:
            OSError: it cannot be done.
        """
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(fd)
            # With a second name it may be a file of somewhere else.
            if found.st_uid != self.uid and stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
                os.fchown(fd, self.uid, self.gid)
        finally:
            os.close(fd)

    def give_directory(self, directory: Path) -> None:
        """Make a directory of the server's the user's, with all that is in it. What is above it stays the server's.

        Raises:
            OSError: it cannot be done.
        """
        directory.mkdir(mode=0o700, exist_ok=True)
        if directory.stat(follow_symlinks=False).st_uid == self.uid:
            return
        for _, directories, files, fd in os.fwalk(directory, follow_symlinks=False):
            for name in (*directories, *files):
                os.chown(name, self.uid, self.gid, dir_fd=fd, follow_symlinks=False)
        # Last: until then only root can change its content.
        os.chown(directory, self.uid, self.gid, follow_symlinks=False)

    def open_run(self, lock_file: Path, scratch_dir: Path) -> None:
        """What a driver has in the directory of the server that starts it.

        Raises:
            OSError: it cannot be done.
        """
        self.let_through(lock_file.parent)
        os.close(os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        self.give(lock_file)
        self.give_directory(scratch_dir)

    def open_job(self, assignment: Path) -> None:
        """What a driver has in the directory of its job: that of its attempt, its working directory, the checkpoint,
        results, artifacts.

        Raises:
            OSError: it cannot be done.
        """
        attempt_dir, job_dir = assignment.parent, assignment.parent.parent
        self.let_through(job_dir.parent)
        self.let_through(job_dir)
        self.give(assignment)
        own = [each for each in (job_dir / "home",) if each.exists()]
        for directory in (attempt_dir, *own, job_dir / "checkpoint", job_dir / "results"):
            self.give_directory(directory)
        # Each version of a job has its own.
        for artifacts in job_dir.glob("artifacts*"):
            # Python looks for modules in the list of names.
            self.let_through(artifacts, to_list=True)
            for file in artifacts.iterdir():
                self.give(file)
