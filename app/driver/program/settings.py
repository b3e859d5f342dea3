"""The settings of a program and those of its job, merged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.driver.failures import DriverError
from app.model.graphdoc_build import DEFAULT_STATE_PARTITIONS
from app.model.javaoptions import JAVA_OPTION_SETTINGS, MEMORY_SETTING
from app.model.ownsettings import CHECKPOINT_LOCATION, FIXED_SETTINGS, SHUFFLE_PARTITIONS, refused_setting
from app.model.sparkui import ui_fault

_IGNORED = frozenset({"spark.app.name"})
"""The job has its own."""
_ALLOWED = frozenset({SHUFFLE_PARTITIONS, CHECKPOINT_LOCATION})
"""A program decides them, and a graph document does not."""
_BEFORE_JVM = (MEMORY_SETTING, *JAVA_OPTION_SETTINGS)
_INSTEAD = {
    "spark.master": "Slotwise decides where the driver runs: leave master(...) out",
    "spark.remote": "a program has a session of its own, not one of Spark Connect: leave remote(...) out",
}


def settings_of(
    options: Mapping[str, Any], usual: Mapping[str, str], conf: Mapping[str, str], *, batch: bool = False
) -> dict[str, str]:
    """The settings that a program makes by ``options`` and that its job, by ``conf``, does not make otherwise.

    ``usual``: what a `SparkConf` has to which nobody gave anything.

    Raises:
        DriverError: the program makes one that it may not.
    """
    found: dict[str, str] = {}
    for name, value in options.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if value is None or name in _IGNORED or usual.get(name) == text:
            continue
        if (why := _refused(name, text, conf, batch=batch)) is not None:
            raise DriverError(f"the program sets {name} to {text}, which is not possible: {why}.")
        if name not in conf:
            found[name] = text
    return found


def session_conf(own: Mapping[str, str], conf: Mapping[str, str], *, batch: bool = False) -> dict[str, str]:
    """All settings of the session: ``own`` are the program's, ``conf`` those of its job."""
    if batch:
        return {**own, **conf}
    return {SHUFFLE_PARTITIONS: str(DEFAULT_STATE_PARTITIONS), **own, **conf}


def changed_fixed_setting(current: Mapping[str, str | None]) -> str | None:
    """Which setting, of those that every query needs as they are, is another now; in words, without a full stop."""
    for name, value in current.items():
        if value != FIXED_SETTINGS[name]:
            why = refused_setting(name, str(value), batch=False)
            return f"the program has set {name} to {value}, which is not possible: {why}"
    return None


def _refused(name: str, value: str, conf: Mapping[str, str], *, batch: bool) -> str | None:
    if name in _INSTEAD:
        return _INSTEAD[name]
    if name in _ALLOWED or FIXED_SETTINGS.get(name) == value:
        return None
    if name in _BEFORE_JVM:
        # The JVM has what the job says.
        told = f"it is read before the program runs: give it to the job, as --conf {name}={value}"
        return None if name in conf else told
    if (fault := ui_fault(name, value)) is not None:
        return f"it {fault.removesuffix('.')}"
    return refused_setting(name, value, batch=batch, program=batch)
