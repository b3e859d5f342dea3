"""The JVM of a driver: started directly with java, which saves the launcher JVM of spark-submit.

It starts as a Py4J gateway without a SparkContext. Its standard input is a pipe that only this process holds: when
this process dies, however it dies, the gateway reads the end of it and exits.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from app.driver.failures import DriverError, Failure, one_line
from app.durablefiles import write_whole
from app.model.javaoptions import LOG4J_FILE, MEMORY_SETTING, OPENED_PACKAGES
from app.model.sparkui import ADDRESS_VARIABLE, LOOPBACK

# Set by `app.cluster`. The second one has options for the JVM, separated by spaces and quoted as for a shell.
JAVA_VARIABLE = "_SLOTWISE_DRIVER_JAVA"
JAVA_OPTIONS_VARIABLE = "_SLOTWISE_DRIVER_JAVA_OPTIONS"
# The packages of a job.
JARS_VARIABLE = "_SLOTWISE_DRIVER_JARS"

GATEWAY_VARIABLES = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
"""Where PySpark looks for a gateway."""

# No file can be made there, not even by root.
_NOWHERE = "/proc"

START_TIMEOUT_S = 60.0
_POLL_S = 0.004
_SAID_BYTES = 800

# Chosen by measurement (docs/adr/0010-appcds-and-warm-drivers.md): the serial collector takes the least memory, and C2
# compiles only what has run ten times as often as it would ask for by itself. So the start is left to C1, nearly as if
# there were no C2, and long jobs get it.
JAVA_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:+UseSerialGC",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
# A stack of 8 MB, because stopping a query inside a Python callback recurses deeply. A JVM whose heap is full ends at
# once: it would limp on for minutes. (Spark itself ends executors so.) The options of the setting driver_java_options
# come later on the command line, so they win.
DEFAULT_JAVA_OPTIONS = (*JAVA_OPTIONS, "-Xss8m", "-Xmx1g", "-XX:+ExitOnOutOfMemoryError")
_HEAP = "-Xmx"
_HEAP_IS_FULL = (3, 52)
"""The exit status of Java's own end at an OutOfMemoryError, and of Spark's."""
_KILLING = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
_CAUGHT = 128
"""A JVM that catches a signal ends with its number and this."""


def spark_home() -> Path:
    """Where the installed PySpark keeps its jars, found without importing it (that takes a second)."""
    for entry in sys.path:
        candidate = Path(entry or ".") / "pyspark"
        if (candidate / "jars").is_dir():
            return candidate.resolve()
    raise DriverError("PySpark is not installed for this Python: there is no pyspark/jars on its path.")


def java_command() -> str:
    """The java that the control plane looked at and found new enough."""
    command = os.environ.get(JAVA_VARIABLE)
    if not command:
        raise DriverError(f"A driver is started by the control plane, with {JAVA_VARIABLE} set to its java.")
    return command


def archive_options(archive: str) -> list[str]:
    """What lets Java start from a class data archive, if there is one; a stale one costs speed only."""
    if not archive or not os.path.exists(archive):
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def executor_classpath(home: Path) -> str:
    """The class path of an executor, in the order in which its worker puts it together: driver and executors share one
    archive of class data."""
    found = [str(path) for path in (home / "jars").glob("*.jar")]
    first = [jar for jar in found if "/slf4j-api-" in jar]
    return ":".join([*first, *found])


def java_command_line(home: Path, archive: str, extra: Iterable[str]) -> list[str]:
    """The whole command. ``archive`` is the class data archive to start from, or empty."""
    # Behind Spark's own: an archive of class data is for whatever class path begins with its own.
    jars = ":".join(filter(None, (executor_classpath(home), os.environ.get(JARS_VARIABLE))))
    options = [
        *DEFAULT_JAVA_OPTIONS,
        *OPENED_PACKAGES,
        "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
        *archive_options(archive),
    ]
    main = ["org.apache.spark.deploy.SparkSubmit", "pyspark-shell"]
    return [java_command(), "-cp", jars, *options, *extra, *main]


def write_options(path: Path, options: Iterable[str]) -> str:
    """Write ``options`` into the file ``path``, for its owner alone, and return the option that stands for them: what
    is on a command line can be read by every user of the host, and a password may be in it."""
    escaped = (
        option.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n").replace("\r", r"\r")
        for option in options
    )
    write_whole(path, "".join(f'"{option}"\n' for option in escaped).encode(), mode=0o600)
    return f"@{path}"


def _signal(number: int) -> str:
    names = {each.value: f" ({each.name})" for each in signal.Signals}
    return f"signal {number}{names.get(number, '')}"


@dataclass
class Jvm:
    """A JVM that was started with ``environment``; `connect` makes it the gateway of this process."""

    process: subprocess.Popen[bytes]
    info_file: Path
    heap: str
    environment: Mapping[str, str]
    log_begins: int

    def end(self, within_s: float) -> Failure | None:
        """How it has ended, or does ``within_s`` seconds; None if it lives."""
        try:
            status = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            return None
        number = -status if status < 0 else status - _CAUGHT
        if status in _HEAP_IS_FULL:
            how = (
                f"The heap of the driver's JVM, {self.heap}, is full (java.lang.OutOfMemoryError), so it has ended: "
                f"give the job a larger one by {MEMORY_SETTING}."
            )
        elif number in _KILLING:
            who = (
                ": the kernel does that to a host that has no memory left" if number == signal.SIGKILL else ""
            )
            return Failure(f"The driver's JVM was killed by {_signal(number)}{who}.", "", killed=True)
        elif status < 0:
            how = f"The driver's JVM crashed with {_signal(number)}: its log is that of the driver."
        else:
            how = f"The driver's JVM ended with exit status {status}: its log is that of the driver."
        return Failure(how, "")

    def wait_for_gateway(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait for the handshake and publish it where PySpark looks for a gateway.

        Raises:
            DriverError: the JVM ended or stayed silent.
        """
        deadline = time.monotonic() + timeout_s
        while not self.info_file.exists():
            if self.process.poll() is not None:
                said = self._said() or "its messages are in the log of the driver"
                raise DriverError(
                    f"The driver's JVM ended with exit status {self.process.returncode} before it was ready: {said}.",
                    recoverable=True,
                )
            if time.monotonic() > deadline:
                raise DriverError(
                    f"The driver's JVM was not ready within {timeout_s:.0f} s.", recoverable=True
                )
            time.sleep(_POLL_S)
        content = self.info_file.read_bytes()
        port, length = struct.unpack("!ii", content[:8])
        with contextlib.suppress(OSError):
            shutil.rmtree(self.info_file.parent)
        os.environ.update(zip(GATEWAY_VARIABLES, (str(port), content[8 : 8 + length].decode()), strict=True))

    def _said(self) -> str:
        """What it has printed, in a line; empty if that cannot be read."""
        output = sys.stderr.fileno()
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.fstat(output).st_mode):
                with open(f"/proc/self/fd/{output}", "rb") as log:
                    log.seek(self.log_begins)
                    return one_line(log.read(_SAID_BYTES).decode(errors="replace")).rstrip(".")
        return ""

    def kill(self) -> None:
        """End it at once and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()


def start_jvm(
    *,
    scratch_dir: Path,
    inherited_fds: tuple[int, ...],
    archive: str = "",
    extra: tuple[str, ...] = (),
    link: Path | None = None,
) -> Jvm:
    """Start the JVM and return at once; it inherits ``inherited_fds`` (the lock of the driver).

    Its temporary files lie in ``scratch_dir``: it is ended too abruptly to remove them itself. ``link``: a path to be
    made, through which it sees its working directory, which is not known yet (see `app.driver.working_dir`); None: it
    is that of this process.
    """
    home = spark_home()
    scratch_dir.mkdir(parents=True, exist_ok=True)
    info_file = Path(tempfile.mkdtemp(prefix="gateway-", dir=scratch_dir)) / "connection"
    extra = (f"-Djava.io.tmpdir={scratch_dir}", *extra)
    if link is not None:
        link.symlink_to(scratch_dir)
        extra = (*extra, f"-Duser.dir={link}")
    environment = _spark_environment(scratch_dir)
    asked = shlex.split(os.environ.get(JAVA_OPTIONS_VARIABLE, ""))
    if not any(map(LOG4J_FILE.match, asked)):
        asked.append(f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}")
    # The directory goes as soon as the JVM is ready.
    options = write_options(info_file.with_name("options"), (*asked, *extra))
    heap = [each for each in (*DEFAULT_JAVA_OPTIONS, *asked, *extra) if each.startswith(_HEAP)][-1]
    log_begins = os.fstat(sys.stderr.fileno()).st_size
    process = subprocess.Popen(
        java_command_line(home, archive, [options]),
        stdin=subprocess.PIPE,
        stdout=sys.stderr.fileno(),
        stderr=sys.stderr.fileno(),
        env={**environment, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info_file)},
        pass_fds=inherited_fds,
        cwd=None if link is None else _NOWHERE,
    )
    return Jvm(process, info_file, heap.removeprefix(_HEAP), environment, log_begins)


def _spark_environment(scratch_dir: Path) -> dict[str, str]:
    """The environment of the JVM, also set for this process: Python workers are started by the JVM from it.

    Without SPARK_HOME: with it the JVM puts PySpark's zip file first on the path of its Python processes, which then
    compile what they import each time they start, instead of reading it compiled from where PySpark is installed. A
    driver starts half a dozen of them, one after another, and each takes 0.2 s instead of 1 s. Without SPARK_CONF_DIR:
    the settings of a job do not depend on a file of the host.
    """
    for name in ("SPARK_HOME", "SPARK_CONF_DIR"):
        os.environ.pop(name, None)
    root = own = str(Path(__file__).resolve().parents[2])
    if root not in map(os.path.abspath, sys.path):
        # In the environment of a job: workers read sources of ours, and nothing else that lies beside this package.
        package, workers = Path(root, __name__.partition(".")[0]), scratch_dir.absolute() / "workers"
        workers.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (workers / package.name).symlink_to(package)
        own = str(workers)
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [own, *(path for path in given if path and path not in (root, own))]
    os.environ.update(
        PYSPARK_PYTHON=sys.executable,
        PYSPARK_DRIVER_PYTHON=sys.executable,
        PYTHONPATH=os.pathsep.join(paths),
        SPARK_CONNECT_MODE="0",
    )
    os.environ.setdefault(ADDRESS_VARIABLE, LOOPBACK)
    return dict(os.environ)
