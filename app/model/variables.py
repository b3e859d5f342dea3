"""The environment variables of a job: which names they may have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

VARIABLES: Final = "environmentVariables"
MAX_VARIABLES: Final = 200
EXECUTOR_ENV: Final = "spark.executorEnv."
"""Spark's settings for the variables of its executors, on whichever cluster."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}\Z")
_OWN = ("_SLOTWISE_", "SPARK_", "PYSPARK_", "_PYSPARK_", "PYTHONPATH")
_AT_THE_START = re.compile(
    r"(?:PYTHON|JAVA_|LD_|LC_|HADOOP_).*|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH|LANG|LANGUAGE"
)
# Spark's setting, and its default.
_HIDING = "spark.redaction.regex"
_USUALLY_HIDDEN = "(?i)secret|password|token|access[.]?key|credential"


def is_own(name: str) -> bool:
    """Whether Slotwise and Spark set a variable themselves, so that neither a job nor its program can."""
    return name.startswith(_OWN)


def variable_fault(name: str) -> str | None:
    """Why a job may not have a variable of this name, to follow the place of the field; None if it may."""
    if not _NAME.match(name):
        return "should have a name of letters, digits and _, at most 200, that does not begin with a digit."
    if is_own(name):
        return (
            f"is not allowed: Slotwise and Spark set the variables that begin with {', '.join(_OWN)} themselves. Say "
            "under environment which Python the job runs with, and under artifacts what it imports."
        )
    if _AT_THE_START.fullmatch(name):
        return (
            "is not allowed: it is read when Python, Java or a library of theirs starts, and that of a driver is "
            "before it has the job."
        )
    return None


def is_of_host(name: str) -> bool:
    """Whether a variable that a program sets is for the host of its driver: executors on others have their own."""
    return name == "PATH" or variable_fault(name) is not None


def executor_settings(variables: Mapping[str, str]) -> dict[str, str]:
    """The settings by which executors, and their Python workers, have ``variables``."""
    return {f"{EXECUTOR_ENV}{name}": value for name, value in variables.items()}


def hiding_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """The setting by which Spark's page and log of events hide their values, besides what ``conf`` has hidden."""
    return {_HIDING: f"{conf.get(_HIDING, _USUALLY_HIDDEN)}|^{re.escape(EXECUTOR_ENV)}"}
