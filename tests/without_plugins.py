"""A plugin of pytest that lets no test import `app.plugins`: `pytest -p tests.without_plugins tests/unit/scheduler`."""

import sys

# What stands here as None is not found by an import.
sys.modules["app.plugins"] = None  # type: ignore[assignment]
