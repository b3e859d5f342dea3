"""Small durable files in a query's checkpoint: what a source must still know after a crash."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from app.driver.sources.errors import SourceError


def write_durably(path: Path, value: object) -> None:
    """Write ``path`` whole or not at all; on return it survives a power failure."""
    make_durable_directory(path.parent)
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(path.parent)


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
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
