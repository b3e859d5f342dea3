"""docs/configuration.md names every setting and every option, with the defaults in force, and nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from app.model.options import OPTIONS, JobOptions
from app.settings import Settings

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"
ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+?) \|", re.MULTILINE)
DEPENDS_ON_THE_HOST = {"data_dir", "slots"}
STRATEGIES = ("restart_strategy", "creation_retry")


def rows(first: str, last: str | None) -> dict[str, str]:
    text = PAGE.read_text(encoding="utf-8").partition(f"## {first}")[2]
    assert text, f"the page has no section {first}"
    return {
        name: default.strip("`")
        for name, default in ROW.findall(text.partition(f"## {last}")[0] if last else text)
    }


def written(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) or "empty"


def test_every_setting_is_there_with_its_default() -> None:
    shown = rows("Settings of a server", "Options of a job")
    assert set(shown) == set(Settings.model_fields)
    for name, field in Settings.model_fields.items():
        if name not in DEPENDS_ON_THE_HOST:
            assert shown[name] == written(field.default), name


def test_every_option_is_there_with_its_default() -> None:
    shown = rows("Options of a job", None)
    assert shown.keys() == OPTIONS.keys()
    found, errors = JobOptions.parse(shown)
    # What is left to the scheduler or the driver, and what they do as long as nothing is set, is explained in words.
    said = {name: replace(getattr(JobOptions(), name), is_set=True) for name in STRATEGIES}
    left = {"submission_stabilization_ms": 0, "batch_target_ms": 10_000}
    assert errors == [] and found == replace(JobOptions(), **left, **said)
