"""The assignment that plans a program: from the file to the answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from app.driver.program.origin import Origin
from app.driver.program.places import Places
from app.driver.program.planner import Planner
from app.driver.program.planning_calls import PlanningTakeover
from app.driver.program.run import run_program
from app.driver.session import add_files
from app.durablefiles import write_whole
from app.model.ids import vertex_id
from app.model.jobgraph import ProgramSpec
from app.model.planned import Planned, planned_to_json
from app.model.protocol import PlanningSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plan_program(
    spec: PlanningSpec,
    open_session: Callable[[PlanningSpec], SparkSession],
    leave: Callable[[int], NoReturn],
) -> NoReturn:
    """Run the program of ``spec`` in this thread until it is planned, and end the process."""
    graph: Any = spec.graph
    program = ProgramSpec(str(graph["script"]), tuple(map(str, graph.get("args", ()))))
    artifacts = tuple(map(str, graph.get("artifacts", ())))
    artifacts_dir = Path(spec.artifacts_dir)
    places = Places(artifacts_dir, program.script)

    def opened(conf: Mapping[str, str]) -> SparkSession:
        session = open_session(replace(spec, spark_conf=dict(conf)))
        for name, value in conf.items():
            if session.conf.isModifiable(name):
                session.conf.set(name, value)
        add_files(session, (str(artifacts_dir / name) for name in artifacts))
        return session

    def done(planned: Planned) -> NoReturn:
        write_whole(Path(spec.answer_file), json.dumps(planned_to_json(planned)).encode())
        leave(0)

    before = Path(spec.checkpoint_dir) if spec.checkpoint_dir else None
    origin = Origin(Path(str(graph["from"]))) if "from" in graph else None
    planner = Planner(
        places,
        opened,
        done,
        Path(spec.work_dir) / "state",
        origin=origin,
        before=lambda sink: before / vertex_id(spec.job_name, sink) if before is not None else None,
    )
    PlanningTakeover(planner, places, spec.spark_conf).install()
    planner.program_ended(run_program(program, artifacts_dir, artifacts, places))
    raise AssertionError("a planner that is told of the end answers")
