"""Parsing of JVM options: one text, split as a shell splits it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable
from typing import Final

JAVA_OPTION_SETTINGS: Final = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
"""Settings of a job whose value is such a text, for the JVM of its driver."""

EXECUTOR_OPTIONS: Final = "spark.executor.extraJavaOptions"
DEFAULT_EXECUTOR_OPTIONS: Final = "spark.executor.defaultJavaOptions"
EXECUTOR_OPTION_SETTINGS: Final = (EXECUTOR_OPTIONS, DEFAULT_EXECUTOR_OPTIONS)
"""The same for its executors, on a cluster."""
ALL_JAVA_OPTION_SETTINGS: Final = (*JAVA_OPTION_SETTINGS, *EXECUTOR_OPTION_SETTINGS)

OPENED_PACKAGES: Final = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        "java.lang",
        "java.lang.invoke",
        "java.lang.reflect",
        "java.io",
        "java.net",
        "java.nio",
        "java.util",
        "java.util.concurrent",
        "java.util.concurrent.atomic",
        "jdk.internal.ref",
        "sun.nio.ch",
        "sun.nio.cs",
        "sun.security.action",
        "sun.util.calendar",
    )
)
"""What Spark asks of Java 17 and newer (org.apache.spark.launcher.JavaModuleOptions)."""

LOG4J_FILE: Final = re.compile(r"(-Dlog4j2?\.configurationFile=)(?:(?:file:)?(?:\./)?([^/:]+)$)?")
"""The option that names log4j's configuration, and the file that it names without a directory."""

MEMORY_SETTING: Final = "spark.driver.memory"
_MEMORY: Final = re.compile(r"([1-9][0-9]{0,8})([mMgG])")
_LEAST_MB: Final = 256
_MOST_MB: Final = 16 * 1024 * 1024


def memory_fault(text: str) -> str | None:
    """What is wrong with ``text`` as the heap of a driver's JVM, to follow the name of the field; None if nothing."""
    match = _MEMORY.fullmatch(text)
    size_mb = int(match[1]) * (1024 if match[2] in "gG" else 1) if match else 0
    if _LEAST_MB <= size_mb <= _MOST_MB:
        return None
    return "should be the heap of the driver's JVM, from 256m to 16384g: a whole number followed by m or g."


def split_java_options(text: str) -> tuple[str, ...]:
    """The options in ``text``.

    Raises:
        ValueError: a quotation mark is not closed, or a backslash ends the text.
    """
    return tuple(shlex.split(text))


def executor_options_fault(text: str) -> str | None:
    """What is wrong with ``text`` as options of executors, to follow the name of the field; None if nothing.

    Spark does not start with these two.
    """
    if "-Xmx" in text:
        return "should not have -Xmx: the memory of executors is the cluster's."
    if "-Dspark" in text:
        return "should not have -Dspark...: settings of Spark have a place of their own in config."
    return java_options_fault(text)


def java_options_fault(text: str) -> str | None:
    """What is wrong with ``text``, to follow the name of the field; None if it can be split."""
    try:
        split_java_options(text)
    except ValueError as error:
        reason = "a quotation mark is not closed" if "quotation" in str(error) else "it ends with a backslash"
        return f"should be JVM options separated by blanks, quoted as in a shell: {reason}."
    return None


def jvm_options(
    config: Iterable[tuple[str, str]], artifacts: Collection[str] = (), directory: str = ""
) -> tuple[str, ...]:
    """Settings of a job that only a new JVM can take; a job that has any never gets a warm driver. ``artifacts`` are in
    ``directory``, which is not the one in which the JVM is started."""
    options: list[str] = []
    for key, value in config:
        if key == MEMORY_SETTING:
            options.append(f"-Xmx{value}")
        elif key in JAVA_OPTION_SETTINGS:
            options.extend(split_java_options(value))
    found = [(option, LOG4J_FILE.match(option)) for option in options]
    return tuple(f"{of[1]}{directory}/{of[2]}" if of and of[2] in artifacts else text for text, of in found)
