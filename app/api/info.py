"""What the server tells about itself."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field

from sqlalchemy.engine import make_url

from app.settings import Settings


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """This server: its version, the slots that it offers, its own URL, and the settings in force."""

    version: str
    slots: int
    url: str
    settings: Settings
    started_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def shown_settings(self) -> dict[str, str]:
        """The settings as texts fit to be shown, without the password of the database. Unset ones are left out."""
        values = self.settings.model_dump(mode="json", exclude_none=True)
        shown = {
            name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()
        }
        shown["database_url"] = make_url(self.settings.url).render_as_string(hide_password=True)
        return dict(sorted(shown.items()))
