"""Figures are for people and autoscalers: a job runs without those that cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from app.driver.failures import one_line

log = logging.getLogger(__name__)

T = TypeVar("T")

_said: set[str] = set()


def measured(what: str, read: Callable[[], T], otherwise: T) -> T:
    """What ``read`` gives, or ``otherwise`` if it fails, which is logged once for each ``what`` in a process."""
    try:
        return read()
    except Exception as error:
        if what not in _said:
            _said.add(what)
            log.warning("%s cannot be read: %s", what, one_line(str(error)))
        return otherwise
