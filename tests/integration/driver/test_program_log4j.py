"""What a program logs by log4j, of either API, is in the log of its driver, as its own configuration says."""

from __future__ import annotations

import pytest

from tests.environments import QUICK_JAVA
from tests.integration.driver.harness import ROOT, Bench, Driver
from tests.integration.driver.test_program_attempt import the_end
from tests.integration.driver.test_program_begin import unknown

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

PROGRAMS = ROOT / "tests/programs"


@pytest.mark.parametrize("option", ["", "log4j.configurationFile"])
def test_what_a_program_logs_is_in_the_log_of_its_driver(
    rig: Bench, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    document = unknown(rig, (PROGRAMS / "by_log4j.py").read_text())
    lines = [" mine: by the first", " mine: by the second"]
    if option:
        asked = f"{QUICK_JAVA} -D{option}={PROGRAMS}/mine.properties"
        monkeypatch.setitem(Driver.environment, "_SLOTWISE_DRIVER_JAVA_OPTIONS", asked)
        lines = ["\nWARN of mine: by the first", "\nWARN of mine: by the second"]
    driver = rig.start(document)
    the_end(rig, "finished")
    driver.exit_status()
    assert [line in driver.log for line in lines] == [True, True], driver.log
