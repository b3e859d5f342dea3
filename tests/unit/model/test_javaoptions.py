"""Options for a JVM in one text: what cannot be split is refused where it is written."""

from __future__ import annotations

import pytest

from app.model.javaoptions import jvm_options, memory_fault, split_java_options
from app.settings import SettingsError, load_settings
from tests.unit.model.documents import document, errors

FAULTS = [('-Dx="a', "a quotation mark is not closed"), ("-Dx=a\\", "it ends with a backslash")]


def test_they_are_split_as_a_shell_does() -> None:
    assert split_java_options("-Dx='a b'  -Xss4m") == ("-Dx=a b", "-Xss4m")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("-Dlog4j2.configurationFile=mine.xml", "-Dlog4j2.configurationFile=/of the job/mine.xml"),
        ("-Dlog4j.configurationFile=file:./mine.xml", "-Dlog4j.configurationFile=/of the job/mine.xml"),
        ("-Dlog4j2.configurationFile=other.xml", None),
        ("-Dlog4j2.configurationFile=file:/etc/mine.xml", None),
        ("-Dlog4j2.configurationFile=https://of.us/mine.xml", None),
        ("-Dx=mine.xml", None),
    ],
)
def test_the_configuration_of_log4j_may_be_one_of_the_files_of_the_job(asked: str, found: str | None) -> None:
    config = [("spark.driver.extraJavaOptions", f"-Xss4m {asked}")]
    assert jvm_options(config, ["mine.xml"], "/of the job") == ("-Xss4m", found or asked)


@pytest.mark.parametrize("name", ["spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"])
@pytest.mark.parametrize(("value", "reason"), FAULTS)
def test_a_job_with_others_is_refused(name: str, value: str, reason: str) -> None:
    assert errors(document(config={name: "-Dx='a b' -Xss4m"})) == []
    [error] = errors(document(config={name: value}))
    assert name in error
    assert error.endswith(f"should be JVM options separated by blanks, quoted as in a shell: {reason}.")


@pytest.mark.parametrize("name", ["spark.executor.extraJavaOptions", "spark.executor.defaultJavaOptions"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [("-Xmx1g", "should not have -Xmx"), ("-Dspark.x=1", "should not have -Dspark"), *FAULTS],
)
def test_options_of_executors_with_which_spark_does_not_start_are_refused(
    name: str, value: str, reason: str
) -> None:
    assert errors(document(config={name: "-Dx='a b' -Xss4m"})) == []
    [error] = errors(document(config={name: value}))
    assert name in error and reason in error


@pytest.mark.parametrize(("value", "reason"), FAULTS)
def test_a_server_with_others_does_not_start(value: str, reason: str) -> None:
    assert load_settings(driver_java_options="-Dx='a b'").driver_java_options == "-Dx='a b'"
    with pytest.raises(SettingsError) as refused:
        load_settings(driver_java_options=value)
    assert refused.value.errors == [
        f"driver_java_options: should be JVM options separated by blanks, quoted as in a shell: {reason}."
    ]


@pytest.mark.parametrize("text", ["256m", "4g", "16384G", "2048M"])
def test_a_heap_that_java_can_have(text: str) -> None:
    assert memory_fault(text) is None


@pytest.mark.parametrize(
    "text", ["banana", "900t", "1k", "4gb", "255m", "0g", "", " 4g", "16385g", "1.5g", "4"]
)
def test_a_heap_that_no_driver_could_start_with_is_refused(text: str) -> None:
    fault = memory_fault(text)
    assert fault is not None and "from 256m to 16384g" in fault
