"""What processes that the server starts inherit of its environment."""

from __future__ import annotations

import os

from app.settings import ENV_PREFIX


def inherited_environment() -> dict[str, str]:
    """All but the settings of the server: the code of jobs runs in these processes, and the password of the database
    is none of its business."""
    return {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
