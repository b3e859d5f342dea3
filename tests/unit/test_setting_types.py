"""No setting takes a value for what it is not: true for 1, a text for a number, an empty text for a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.settings import Settings, load_settings
from tests.unit.test_settings import ENV_PREFIX, VALUES, no_settings_of_the_machine, refused

__all__ = ["no_settings_of_the_machine"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("port = true", "port: should be a whole number (found true)."),
        ("port = 80.0", "port: should be a whole number (found 80.0)."),
        ('port = "80"', "port: should be a whole number (found '80')."),
        ("slots = [1]", "slots: should be a whole number (found [1])."),
        ("lease_seconds = true", "lease_seconds: should be a number (found true)."),
        ("lease_seconds = nan", "lease_seconds: should be a number (found NaN)."),
        ('lease_seconds = "20"', "lease_seconds: should be a number (found '20')."),
        ("appcds = 1", "appcds: should be true or false (found 1)."),
        ('appcds = "yes"', "appcds: should be true or false (found 'yes')."),
        ("data_dir = 1", "data_dir: should be a text in quotes (found 1)."),
        ("data_dir = 2026-01-01", "data_dir: should be a text in quotes (found datetime.date(2026, 1, 1))."),
        ('data_dir = "a\\u0000b"', "data_dir: should not contain a null character."),
        ("log_level = true", "log_level: should be a text in quotes (found true)."),
        ("driver_java_options = 3", "driver_java_options: should be a text in quotes (found 3)."),
        ("cluster_executor_cpu = true", "cluster_executor_cpu: should be a text in quotes (found true)."),
    ],
)
def test_in_a_file_nothing_is_taken_for_another_type(line: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "slotwise.toml"
    file.write_text(line + "\n")
    assert refused(file) == [sentence]


@pytest.mark.parametrize("name", Settings.model_fields)
def test_no_setting_takes_another_type_from_a_file(name: str, tmp_path: Path) -> None:
    value = VALUES[name][0]
    file = tmp_path / "slotwise.toml"
    for other in ("true", "1"):
        # A number of cores may be a text or a number.
        is_number = type(value) in (int, float) or name.startswith("cluster_executor_cpu")
        if isinstance(value, bool) if other == "true" else is_number:
            continue
        file.write_text(f"{name} = {other}\n")
        (sentence,) = refused(file)
        assert sentence.startswith(f"{name}: should be ") and sentence.endswith(f"(found {other}).")


def test_a_file_that_is_named_by_an_empty_text_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOTWISE_CONFIG", "")
    assert refused() == ["SLOTWISE_CONFIG should not be empty: unset it if there is no file."]


@pytest.mark.parametrize("text", ["1_000", "1.0", "1e3", "0x50", "true", "+8", "\u0661"])
def test_the_environment_has_numbers_in_digits(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_PREFIX + "PORT", text)
    assert refused() == [f"port: should be a whole number (found {text!r})."]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("port", "8081 ", 8081),
        ("lease_seconds", " 20.5\n", 20.5),
        ("appcds", "True ", True),
        ("log_level", "debug ", "debug"),
        ("data_dir", "/data ", Path("/data ")),
    ],
)
def test_a_blank_at_an_end_is_no_part_of_a_number_or_a_choice(
    name: str, text: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENV_PREFIX + name.upper(), text)
    assert getattr(load_settings(), name) == value
