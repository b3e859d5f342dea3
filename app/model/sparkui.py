"""Spark's web page in a driver: the settings with which a job asks for it, and the cases in which it is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from app.model.sentences import shown

UI_ENABLED: Final = "spark.ui.enabled"
UI_PORT: Final = "spark.ui.port"
UI_KILL: Final = "spark.ui.killEnabled"

LOOPBACK: Final = "127.0.0.1"
ADDRESS_VARIABLE: Final = "SPARK_LOCAL_IP"
"""Of the environment: where the page listens. Drivers have it from the server, or listen on loopback."""

_PORT: Final = re.compile(r"[0-9]{1,5}\Z")
_LOWEST_PORT: Final = 1024
_HIGHEST_PORT: Final = 65_535


def wants_ui(config: Iterable[tuple[str, str]]) -> bool:
    return any(name == UI_ENABLED and value.lower() == "true" for name, value in config)


def ui_fault(name: str, value: str) -> str | None:
    """What is wrong with a setting of the page, without the name of the setting."""
    if name in (UI_ENABLED, UI_KILL) and value.lower() not in ("true", "false"):
        return f"should be true or false, found {shown(value)}."
    if name == UI_PORT and not (
        _PORT.match(value) and (int(value) == 0 or _LOWEST_PORT <= int(value) <= _HIGHEST_PORT)
    ):
        return (
            f"should be 0, for any port that is free, or a port between {_LOWEST_PORT} and {_HIGHEST_PORT}, found "
            f"{shown(value)}."
        )
    return None


def refused_ui(config: Iterable[tuple[str, str]], address: str) -> str | None:
    """Why a job with these settings cannot have the page, in a sentence; None if it can, or does not ask for it.
    ``address``: where its driver listens."""
    if address == LOOPBACK or not wants_ui(config):
        return None
    return (
        f"The config of the job may not set {UI_ENABLED} to true here: drivers of this server listen on {address} "
        "(SPARK_LOCAL_IP), where everybody could read the page, which has no password."
    )
