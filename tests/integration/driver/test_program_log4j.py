"""What a program logs by log4j, of either API, is in the log of its driver, as its own configuration says."""

from __future__ import annotations

import pytest

from tests.environments import QUICK_JAVA
from tests.integration.driver.harness import Bench, Driver
from tests.integration.driver.test_program_attempt import the_end
from tests.integration.driver.test_program_begin import unknown

pytestmark = pytest.mark.timeout(600)

LOGS = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark._jvm.org.apache.log4j.LogManager.getLogger("mine").warn("by the first")
spark._jvm.org.apache.logging.log4j.LogManager.getLogger("mine").warn("by the second")
"""
OWN = """
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p of %c: %m%n
logger.mine.name = mine
logger.mine.level = warn
"""


@pytest.mark.parametrize("option", [pytest.param("", marks=pytest.mark.long), "log4j.configurationFile"])
def test_what_a_program_logs_is_in_the_log_of_its_driver(
    rig: Bench, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    document = unknown(rig, LOGS)
    lines = [" mine: by the first", " mine: by the second"]
    if option:
        (rig.artifacts_dir / "mine.properties").write_text(OWN)
        asked = f"{QUICK_JAVA} -D{option}={rig.artifacts_dir}/mine.properties"
        monkeypatch.setitem(Driver.environment, "_SLOTWISE_DRIVER_JAVA_OPTIONS", asked)
        lines = ["\nWARN of mine: by the first", "\nWARN of mine: by the second"]
    driver = rig.start(document)
    the_end(rig, "finished")
    driver.exit_status()
    assert [line in driver.log for line in lines] == [True, True], driver.log
