"""The TOML file of a server's settings."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


class SettingsError(ValueError):
    """One or more settings are wrong; ``errors`` has a sentence for each."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = errors


def read_settings_file(path: Path) -> dict[str, Any]:
    """What is set there, by name.

    Raises:
        SettingsError: the file cannot be read.
    """
    try:
        return _flat(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise SettingsError([f"The configuration file {path} cannot be read: {error.strerror}."]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError([f"The configuration file {path} is not valid TOML: {error}."]) from None


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """The table ``[cluster]`` holds the settings whose names begin with ``cluster_``."""
    table = values.get("cluster")
    if not isinstance(table, dict):
        return values
    if twice := sorted(f"cluster_{name}" for name in table if f"cluster_{name}" in values):
        raise SettingsError([f"{name}: is given twice, in the table [cluster] too." for name in twice])
    return {
        **{name: value for name, value in values.items() if name != "cluster"},
        **{f"cluster_{name}": value for name, value in table.items()},
    }
