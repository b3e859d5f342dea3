"""The slots of a job on one host: how many tasks Spark's local scheduler runs at once, whatever asks for them.

Spark has no setting for it that can be changed, so the count of the scheduler is changed (`cores.java`; ADR 55). Tasks
that run are never cut short: a core that is taken goes as soon as one of them has ended.
"""

from __future__ import annotations

import re
import threading
from typing import Any
from weakref import WeakKeyDictionary

from pyspark import SparkContext

from app.driver.scala import class_loader, made, scala_context

_CORES = re.compile(r"local\[([0-9]+)")
_counted: WeakKeyDictionary[SparkContext, Any] = WeakKeyDictionary()
"""The ``Cores`` of each context: a later attempt in this process goes on with the count of the one before."""


class HostSlots:
    """The slots that a job holds on its host. Thread-safe. ``slots``: how many, until something else is set."""

    def __init__(self, slots: int) -> None:
        self._lock = threading.Lock()
        self._slots = slots
        self._context: SparkContext | None = None

    def take_up(self, context: SparkContext) -> None:
        """Let ``context`` run that many tasks at once, from here on and after each change."""
        with self._lock:
            self._context = context
            self._tell()

    def set(self, slots: int) -> None:
        """The job holds ``slots`` now."""
        with self._lock:
            if slots != self._slots:
                self._slots = slots
                self._tell()

    @property
    def is_settled(self) -> bool:
        """Whether no task runs in a slot that the job does not hold any more."""
        with self._lock:
            counted = None if self._context is None else _counted.get(self._context)
            return counted is None or int(counted.free()) >= 0

    def _tell(self) -> None:
        context = self._context
        if context is None:
            return
        if context not in _counted:
            # Those of an attempt before, if it had the same context.
            cores = int(_CORES.findall(str(context.master))[0])
            if self._slots == cores:
                # As it was started: what counts them need not be compiled.
                return
            _counted[context] = made(context._jvm, counter(context), scala_context(context), cores)
        _counted[context].set(self._slots)


def counter(context: SparkContext) -> Any:
    """The class ``Cores`` of `cores.java`."""
    return class_loader(context._jvm, "cores.java", "org.apache.spark.SparkContext").loadClass(
        "slotwise.Cores"
    )
