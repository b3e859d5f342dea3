"""Finding a Java that Spark can run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

MINIMUM_JAVA = 17


class JavaNotUsable(Exception):
    """There is no Java, or it is too old; the message says what to install."""


@dataclass(frozen=True, slots=True)
class Java:
    """A java that was looked at: its path, and its full version text, for example ``17.0.15``."""

    command: str
    version: str


def _java_command() -> str:
    """The java of JAVA_HOME if that is set, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if command is None or not os.access(command, os.X_OK):
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on PATH"
        raise JavaNotUsable(
            f"Java {MINIMUM_JAVA} or newer is needed to run Spark, but {where}. "
            f"Install it (Debian: apt-get install openjdk-{MINIMUM_JAVA}-jre-headless) or set JAVA_HOME."
        )
    return command


def usable_java() -> Java:
    """The java that drivers use: of JAVA_HOME if that is set, else the one on PATH.

    Raises:
        JavaNotUsable: there is none, it does not run, or it is too old.
    """
    command = _java_command()
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaNotUsable(f"{command} does not run: {error}.") from error
    match = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
    if match is None:
        raise JavaNotUsable(f"{command} -version says nothing that looks like a Java version.")
    version = match.group(1)
    numbers = [int(part) for part in re.findall(r"\d+", version)[:2]]
    major = numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
    if major < MINIMUM_JAVA:
        raise JavaNotUsable(
            f"Java {MINIMUM_JAVA} or newer is needed to run Spark, but {command} is version {version}. "
            f"Install a newer one (Debian: apt-get install openjdk-{MINIMUM_JAVA}-jre-headless) or set JAVA_HOME."
        )
    return Java(command, version)
