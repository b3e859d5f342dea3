"""The settings that a program makes in its code: which ones its session gets, and which it may not have."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

from app.driver.failures import DriverError
from app.model.graphdoc_build import DEFAULT_STATE_PARTITIONS
from app.model.javaoptions import JAVA_OPTION_SETTINGS, MEMORY_SETTING
from app.model.ownsettings import (
    APP_NAME,
    CHECKPOINT_LOCATION,
    FIXED_SETTINGS,
    SHUFFLE_PARTITIONS,
    refused_setting,
    task_failures_fault,
)
from app.model.sparkui import ui_fault

log = logging.getLogger(__name__)

_UNNAMED: Final = "pyspark-shell"
"""What PySpark calls a program that gives itself no name."""
_ALLOWED: Final = frozenset({APP_NAME, SHUFFLE_PARTITIONS, CHECKPOINT_LOCATION})
"""A program decides them, and a graph document does not."""
_BEFORE_JVM: Final = (MEMORY_SETTING, *JAVA_OPTION_SETTINGS)
_INSTEAD: Final = {
    "spark.master": "Slotwise decides where the driver runs: leave master(...) out",
    "spark.remote": "a program has a session of its own, not one of Spark Connect: leave remote(...) out",
}
_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
_PASSED_OVER: Final = {
    "spark.master": ("local", "it runs in the slots of its job"),
    "spark.driver.cores": ("", "it is a setting of clusters that start drivers"),
    "spark.submit.deployMode": ("client", "Slotwise starts the driver"),
    _ADAPTIVE: (
        "",
        "the number of tasks follows the bounds of the job; what Spark makes of the rows is the same",
    ),
}
"""Settings without which a program does the same, by how the value begins; and why they are passed over."""


def settings_of(
    options: Mapping[str, Any], usual: Mapping[str, str], conf: Mapping[str, str], *, batch: bool = False
) -> dict[str, str]:
    """The settings that a program makes by ``options`` and that its job, by ``conf``, does not make otherwise.

    ``usual``: what a `SparkConf` has to which nobody gave anything.

    Raises:
        DriverError: the program makes some that it may not; all of them are named.
    """
    found: dict[str, str] = {}
    refused: dict[str, str] = {}
    for name, value in options.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if value is None or usual.get(name) == text:
            continue
        begins, why_not = _PASSED_OVER.get(name, ("", ""))
        if why_not and text.startswith(begins) and not (batch and name == _ADAPTIVE):
            log.warning("the program sets %s to %s, which is passed over: %s", name, text, why_not)
        elif (why := _refusal(name, text, conf, batch=batch)) is not None:
            refused[f"{name} to {text}"] = why
        elif name not in conf:
            found[name] = text
    if len(refused) > 1:
        all_of_them = "; ".join(f"{name}: {why}" for name, why in refused.items())
        raise DriverError(f"the program sets what is not possible. {all_of_them}.")
    for name, why in refused.items():
        raise DriverError(f"the program sets {name}, which is not possible: {why}.")
    return found


def session_conf(own: Mapping[str, str], conf: Mapping[str, str], *, batch: bool = False) -> dict[str, str]:
    """All settings of the session: ``own`` are the program's, ``conf`` those of its job."""
    partitions = {} if batch else {SHUFFLE_PARTITIONS: str(DEFAULT_STATE_PARTITIONS)}
    return {APP_NAME: _UNNAMED, **partitions, **own, **conf}


def put_back(session: SparkSession) -> str | None:
    """Let the query that ``session`` starts next have what every query needs, whatever the program has set meanwhile.

    Which setting cannot be put back, in words, without a full stop; None if there is none.
    """
    for name, fixed in FIXED_SETTINGS.items():
        if not name.startswith("spark.sql.") or (value := session.conf.get(name, None)) == fixed:
            continue
        if name not in _PASSED_OVER:
            why = refused_setting(name, str(value), batch=False)
            return f"the program has set {name} to {value}, which is not possible: {why}"
        log.warning("the program has set %s to %s, which is put back: %s", name, value, _PASSED_OVER[name][1])
        session.conf.set(name, fixed)
    return None


def _refusal(name: str, value: str, conf: Mapping[str, str], *, batch: bool) -> str | None:
    if name in _INSTEAD:
        return _INSTEAD[name]
    if name in _ALLOWED or FIXED_SETTINGS.get(name) == value:
        return None
    if name in _BEFORE_JVM:
        # The JVM has what the job says.
        told = f"it is read before the program runs: give it to the job, as --conf {name}={value}"
        return None if name in conf else told
    if fault := ui_fault(name, value) or task_failures_fault(name, value):
        return f"it {fault.removesuffix('.')}"
    return refused_setting(name, value, batch=batch, program=batch)
