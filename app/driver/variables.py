"""The environment variables of a job, in this process and in its JVM.

A program that plain Python runs has its variables when Python starts, and its JVM is started when it asks for a
session, with what the program has set until then. Here both run before the job is known. So the variables are set when
it is, and the JVM is told of all changes before the first session: its Java code sees them, and its Python workers,
which it starts after that, inherit them.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark import SparkContext

from app.model.variables import is_of_host, is_own


def set_variables(variables: Mapping[str, str]) -> None:
    """Set those of the job in this process, which has no other job before or after it."""
    os.environ.update(variables)
    # What has been read of them before.
    time.tzset()
    tempfile.tempdir = None


def changed_since(before: Mapping[str, str]) -> dict[str, str | None]:
    """The variables of this process that are others than they were; None: those that were taken away."""
    return {
        name: os.environ.get(name)
        for name in sorted({*before, *os.environ})
        if os.environ.get(name) != before.get(name) and not is_own(name)
    }


def for_executors(own: Iterable[str], changed: Iterable[str]) -> dict[str, str]:
    """What executors get: the job's ``own`` variables as they are now, and what the program has ``changed``."""
    told = {*own, *[name for name in changed if not is_of_host(name)]}
    return {name: os.environ[name] for name in told if name in os.environ}


def tell_jvm(changed: Mapping[str, str | None]) -> None:
    """Make the JVM of this process one that was started with what has ``changed``.

    Java has its variables in a map that it gives away as unmodifiable, and Spark's own options open that to us.
    """
    if not changed:
        return
    assert SparkContext._gateway is not None
    jvm: Any = SparkContext._gateway.jvm
    inner = jvm.java.lang.Class.forName("java.util.Collections$UnmodifiableMap").getDeclaredField("m")
    inner.setAccessible(True)
    variables = inner.get(jvm.java.lang.System.getenv())
    for name, value in changed.items():
        if value is None:
            variables.remove(name)
        else:
            # Java has none that are not in UTF-8.
            variables.put(name, os.fsencode(value).decode(errors="replace"))
    if zone := changed.get("TZ"):
        # As Java reads it at its start.
        zones = jvm.java.util.TimeZone
        zones.setDefault(zones.getTimeZone(zone.removeprefix(":")))
        jvm.java.lang.System.setProperty("user.timezone", zones.getDefault().getID())
