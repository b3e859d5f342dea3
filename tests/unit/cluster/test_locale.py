"""The locale that drivers inherit: Java writes the letters of paths by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import doctor
from app.cluster import environments
from app.settings import Settings

INHERITED = (
    "import json; from app.cluster.environments import inherited_environment as e; print(json.dumps(e()))"
)


def told(program: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def inherited(**given: str) -> dict[str, str]:
    """What a driver of a server has that was started with this environment."""
    found: dict[str, str] = json.loads(told(INHERITED, {"PATH": os.environ["PATH"], **given}))
    return found


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"LC_ALL": "C"},
        {"LC_ALL": "POSIX", "LANG": "C.UTF-8"},
        {"LC_ALL": "xx_XX.UTF-8"},
        # As ssh takes it to a host that has no such locale.
        {"LANG": "xx_XX.UTF-8"},
        {"PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_whatever_the_server_has_drivers_write_utf8(given: dict[str, str]) -> None:
    assert told(doctor._CODESET, inherited(**given)) == "UTF-8"


def test_a_locale_of_utf8_is_that_of_drivers_too() -> None:
    own = {"LANG": "C.UTF-8", "LC_NUMERIC": "C"}
    assert {name: value for name, value in inherited(**own).items() if name.startswith("L")} == own


def test_the_doctor_says_what_drivers_get(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "Größe")
    monkeypatch.setenv("LC_ALL", "C")
    environments._writes_utf8.cache_clear()
    try:
        check = doctor._locale(settings)
        assert (check.ok, check.found) == (True, "not UTF-8 here; drivers get C.UTF-8")
        monkeypatch.setattr(environments, "UTF8_LOCALE", "xx_XX.UTF-8")
        check = doctor._locale(settings)
        assert (check.ok, check.found) == (
            False, "there is no locale xx_XX.UTF-8 on this host, which drivers are to have",
        )  # fmt: skip
    finally:
        environments._writes_utf8.cache_clear()


def test_the_doctor_finds_names_that_java_cannot_open() -> None:
    check = doctor._locale(Settings(data_dir=Path("/var/lib/Gr\udcf6sse")))
    assert not check.ok and check.found == r"the name of '/var/lib/Gr\udcf6sse' is not UTF-8"
