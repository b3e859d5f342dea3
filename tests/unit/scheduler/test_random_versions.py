"""Random lives in which the job is replaced again and again (see `test_random_events`)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import rule

from app.model.job_state.versions import JobVersion
from app.scheduler.adaptive.events import VersionRequested
from tests.unit.scheduler import test_random_events


class LifeOfVersions(test_random_events.Life):
    @rule()
    def another_version(self) -> None:
        """Of equal vertices, so that what else is told here is about those."""
        state = self.job.state
        number = state.versions.newest + 1
        graph = replace(state.graph, artifacts=(f"v{number}.py",))
        taken = self.tell(VersionRequested(JobVersion(number, graph, state.options), "ann"))
        now = self.job.state
        one = now.versions.replacement
        assert not taken or (one is not None and one.number == number), "a version was lost"
        assert (now.spare is None) == (one is None), "one that is on trial has one to go back to"
        if one is not None and one.stage == "Waits":
            assert now.driver.alive, "the new version waits for nothing"


TestLifeOfVersions = LifeOfVersions.TestCase
TestLifeOfVersions.pytestmark = pytest.mark.timeout(600)
TestLifeOfVersions.settings = settings(
    max_examples=60,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
