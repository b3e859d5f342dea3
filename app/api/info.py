"""The values that describe the server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlalchemy.engine import make_url

from app.model.masking import masked_java_options, masked_text
from app.settings import Settings
from app.store.engine import shown_url


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """This server: its version, the slots that it offers, its own URL, and the settings in force."""

    version: str
    slots: int
    url: str
    settings: Settings
    warnings: Callable[[], Sequence[str]] = list
    """What does not keep it from serving, in sentences."""
    started_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def shown_settings(self) -> dict[str, str]:
        """The settings as texts fit to be shown, without passwords. Unset ones are left out."""
        values = self.settings.model_dump(mode="json", exclude_none=True)
        shown = {
            name: _shown(name, value if isinstance(value, str) else json.dumps(value))
            for name, value in values.items()
        }
        shown["database_url"] = shown_url(make_url(self.settings.url))
        return dict(sorted(shown.items()))


def _shown(name: str, value: str) -> str:
    """By what is in the value: settings whose names speak of tokens are paths."""
    return masked_java_options(value) if name == "driver_java_options" else masked_text(value)
