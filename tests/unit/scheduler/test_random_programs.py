"""Random lives of programs (see `test_random_events`): from before their first query, which come, end, and come with
other vertices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from app.documents.program import parse_program
from app.model.graphdoc_program import graph_of_version, grown
from app.model.grapherrors import GraphErrors
from app.model.job_state.versions import JobVersion
from app.model.jobgraph import Role
from app.model.planned import PlannedVertex
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptRunning,
    EnvironmentReady,
    Event,
    QueryEnded,
    QueryStarted,
    SlotsChanged,
    StartScheduling,
    VersionRequested,
)
from app.scheduler.adaptive.versions import may_come
from tests.unit.scheduler import test_random_events
from tests.unit.scheduler.driving import Job
from tests.unit.scheduler.lives import ALL_SLOTS, OPTIONS
from tests.unit.scheduler.programs import COPYING, COUNTING, program

SAMPLED = PlannedVertex("some", Role.OPERATOR, "Sample", ("in",))
QUERIES = (
    COUNTING,
    COPYING,
    (COUNTING[0], SAMPLED, replace(COUNTING[1], inputs=("some",)), COUNTING[2]),
    (COUNTING[0], replace(COUNTING[1], state_partitions=3), replace(COUNTING[2], path="/other")),
)
SCRIPTS = ("job.py", "in.py", "out.py", "raw.py")
DOCUMENTS: tuple[dict[str, dict[str, int]], ...] = (
    {},
    {"counts": {"lowerBound": 2, "upperBound": 5}},
    {"in": {"upperBound": 3}, "raw": {"upperBound": 1}, "some": {"lowerBound": 2}},
)


class LifeOfPrograms(test_random_events.Life):
    @initialize(
        script=st.sampled_from(SCRIPTS),
        bounds=st.sampled_from(DOCUMENTS),
        options=st.sampled_from(sorted(OPTIONS)),
        held=st.sampled_from([2, 3, 4, 9]),
        upper=st.integers(2, 6),
    )
    def submitted(  # type: ignore[override]
        self, script: str, bounds: dict[str, dict[str, int]], options: str, held: int, upper: int
    ) -> None:
        self.job = Job(program(script=script, bounds=bounds), upper=upper, options=OPTIONS[options])
        self.asked = []
        self.old_timers = []
        self.trigger = 0
        self.failures_of_queries = 0
        self.tell(StartScheduling())
        self.tell(SlotsChanged(ALL_SLOTS[:held]))
        if self.job.kind == "CreatingExecutionGraph":
            self.tell(AttemptRunning(1, begun=True))

    def tell(self, event: Event) -> bool:
        taken = super().tell(event)
        self.job.graph = self.job.state.graph
        return taken

    @rule()
    def begun(self) -> None:
        self.tell(AttemptRunning(self.job.state.attempt, begun=True))

    def teardown(self) -> None:
        job = getattr(self, "job", None)
        if job is not None and job.kind == "CreatingExecutionGraph" and not job.state.timers:
            # Nothing limits what a program that has begun does before its known queries: it may die of it.
            self.tell(AttemptFailed(job.state.attempt, "The program died.", stopped=True))
        super().teardown()

    @rule(query=st.sampled_from(QUERIES), parallelism=st.integers(0, 9))
    def query_comes(self, query: tuple[PlannedVertex, ...], parallelism: int) -> None:
        state = self.job.state
        try:
            graph = grown(state.graph, query)
        except GraphErrors:
            return
        ids = {one.name: one.id for one in graph.vertices}
        key = ids[query[-1].name]
        at = tuple((ids[one.name], parallelism) for one in query)
        before = state.driver.alive
        self.tell(QueryStarted(state.attempt, key, graph, at))
        if before and self.job.kind in test_random_events.RUNNING:
            assert not self.job.state.graph.awaits_query and key in self.job.state.driver.started

    @rule(which=st.integers(0, 1))
    def query_ends(self, which: int) -> None:
        sinks = [one.id for one in self.job.state.graph.vertices if one.is_sink]
        if sinks:
            self.tell(QueryEnded(self.job.state.attempt, sinks[which % len(sinks)]))

    @rule(
        script=st.sampled_from(SCRIPTS),
        bounds=st.sampled_from(DOCUMENTS),
        packages=st.sampled_from(([], ["a:b:1"])),
        now=test_random_events.sometimes,
    )
    def another_version(
        self, script: str, bounds: dict[str, dict[str, int]], packages: list[str], now: bool
    ) -> None:
        state = self.job.state
        if now:
            number = state.versions.newest + 1
            document = {"name": "words", "script": script, "bounds": bounds, "args": [str(number)]}
            document |= {"packages": packages}
            graph = graph_of_version(parse_program(document), state.graph)
            self.tell(VersionRequested(JobVersion(number, graph, state.options), "ann"))

    @rule(error=st.sampled_from(("", "no such package")))
    def environment_is_ready(self, error: str) -> None:
        before = self.job.state
        number = before.versions.builds
        if number is None or not may_come(before):
            return
        assert before.versions.current != number
        assert self.tell(EnvironmentReady(number, error)), "it was not taken"
        now = self.job.state.versions
        assert now.builds is None and (not error or now.current == before.versions.current)


TestLifeOfPrograms = LifeOfPrograms.TestCase
TestLifeOfPrograms.pytestmark = pytest.mark.timeout(600)
TestLifeOfPrograms.settings = settings(
    max_examples=60,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
