"""`slotwise submit --replace`: a new version of a running job, and its outcome."""

from __future__ import annotations

import time
from typing import Annotated, Final

import typer

from app.cli.client import Client, Json
from app.cli.errors import CliError
from app.cli.jobs import accepted, ended_as
from app.cli.options import Call
from app.cli.output import warn
from app.cli.programs import Submitted, planning, send_to
from app.cli.streams import LOOK_S, JobChanges
from app.cli.waiting import EXIT_TIMEOUT
from app.model.status import TERMINAL_STATUSES

ReplaceOption = Annotated[
    str | None,
    typer.Option(
        "--replace",
        metavar="JOB",
        show_default=False,
        help="A running job, by id or name, that FILE replaces as a new version, from the job's checkpoints.",
    ),
]

_UNDER_WAY: Final = ("STARTING", "TRIAL")


class NotInForce(CliError):
    """A new version has not proven itself in the time that was given for it. It goes on."""

    exit_code = EXIT_TIMEOUT


def replace_job(job: str, submitted: Submitted, call: Call, *, wait: bool, timeout_s: float | None) -> None:
    """Replace ``job``, and with ``wait`` wait until the new version has proven itself.

    Raises:
        CliError: it was taken back, or the job ended.
    """
    problem: CliError | None = None
    job_id = call.client.find_job(job, "change")
    with planning(submitted):
        number = int(send_to(call.client, "PUT", f"/jobs/{job_id}/graph", submitted)["version"])
    outcome = "STARTING"
    if wait:
        with accepted(f"Version {number} of the job {job_id} was accepted, and continues."):
            version, problem = _outcome(call.client, job_id, number, timeout_s)
            outcome = version["outcome"]
    if call.as_json or problem is None:
        told = {"IN_FORCE": "is in force", "REPLACED": "was in force, and is replaced"}
        call.answer(
            {"jobid": job_id, "version": number, "outcome": outcome},
            f"Version {number} of {job_id} {told.get(outcome, 'is being started')}.",
        )
    if problem is not None:
        raise problem


def _outcome(
    client: Client, job_id: str, number: int, timeout_s: float | None
) -> tuple[Json, CliError | None]:
    began_s, told = time.monotonic(), ""
    with JobChanges(client, job_id) as changes:
        while True:
            versions = client.get(f"/jobs/{job_id}/versions")["versions"]
            version = next((one for one in versions if one["version"] == number), None)
            if version is None:
                raise CliError(f"The server does not know any more what became of version {number}.")
            outcome = version["outcome"]
            if outcome not in _UNDER_WAY:
                return version, _problem_of(version)
            state = str(client.get(f"/jobs/{job_id}")["state"])
            if state in TERMINAL_STATUSES:
                return version, ended_as(client, job_id, state) if state != "FINISHED" else None
            if outcome != told:
                warn(f"Version {number} is {'being started' if outcome == 'STARTING' else 'on trial'} ...")
                told = outcome
            left_s = None if timeout_s is None else began_s + timeout_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                sentence = f"Version {number} has not proven itself within {timeout_s:g} s. It goes on."
                return version, NotInForce(sentence, f"See: slotwise explain {job_id}")
            changes.wait(left_s if left_s is not None and left_s < LOOK_S else None)


def _problem_of(version: Json) -> CliError | None:
    """Why a version whose trial is over is not in force; None if it is, or was."""
    number, why = version["version"], version["why"]
    if version["outcome"] == "TAKEN_BACK":
        return CliError(f"Version {number} was taken back, and the version before is in force again: {why}")
    return CliError(f"Version {number}: {why}") if version["outcome"] == "DROPPED" else None
