"""Options for a JVM in one text: what cannot be split is refused where it is written."""

from __future__ import annotations

import pytest

from app.model.javaoptions import split_java_options
from app.settings import SettingsError, load_settings
from tests.unit.model.documents import document, errors

FAULTS = [('-Dx="a', "a quotation mark is not closed"), ("-Dx=a\\", "it ends with a backslash")]


def test_they_are_split_as_a_shell_does() -> None:
    assert split_java_options("-Dx='a b'  -Xss4m") == ("-Dx=a b", "-Xss4m")


@pytest.mark.parametrize("name", ["spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"])
@pytest.mark.parametrize(("value", "reason"), FAULTS)
def test_a_job_with_others_is_refused(name: str, value: str, reason: str) -> None:
    assert errors(document(config={name: "-Dx='a b' -Xss4m"})) == []
    [error] = errors(document(config={name: value}))
    assert name in error
    assert error.endswith(f"should be JVM options separated by blanks, quoted as in a shell: {reason}.")


@pytest.mark.parametrize(("value", "reason"), FAULTS)
def test_a_server_with_others_does_not_start(value: str, reason: str) -> None:
    assert load_settings(driver_java_options="-Dx='a b'").driver_java_options == "-Dx='a b'"
    with pytest.raises(SettingsError) as refused:
        load_settings(driver_java_options=value)
    assert refused.value.errors == [
        f"driver_java_options: should be JVM options separated by blanks, quoted as in a shell: {reason}."
    ]
