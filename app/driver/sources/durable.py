"""Small durable files in a query's checkpoint: what a source must still know after a crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from app.driver.sources.errors import SourceError
from app.durablefiles import sync_to_disk, write_whole


def write_durably(path: Path, value: object) -> None:
    """Write ``path`` whole or not at all; on return it survives a power failure."""
    make_durable_directory(path.parent)
    write_whole(path, json.dumps(value).encode())
    sync_to_disk(path.parent)


def read_durable(path: Path) -> dict[str, Any] | None:
    """The JSON object in ``path``; None if there is no such file.

    Raises:
        SourceError: it is damaged.
    """
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise SourceError(f"The file {path} of the checkpoint is damaged.")
    return value


def make_durable_directory(path: Path) -> None:
    """Create ``path`` and what is missing above it, durably."""
    if path.is_dir():
        return
    make_durable_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_to_disk(path.parent)
