"""What Spark's stores and trackers know: they learn of jobs and stages by the listener bus, a moment later."""

from __future__ import annotations

from typing import Any


def await_listeners(context: Any) -> None:
    """Wait until everything that has happened in this SparkContext has reached those that listen."""
    context._jsc.sc().listenerBus().waitUntilEmpty()
