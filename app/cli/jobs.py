"""Commands about one job or all of them: jobs, show, explain, exceptions, cancel, stop, forget."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import typer

from app.cli.client import Client
from app.cli.errors import CliError, NoServer, TimeIsOver, is_away
from app.cli.events import JobChanges
from app.cli.options import Call, JobArgument, WaitOption
from app.cli.output import (
    Columns,
    format_moment,
    format_ms,
    format_percent,
    format_rest,
    is_terminal,
    say,
    say_wrapped,
    show_table,
    time_column,
    warn,
)
from app.model.status import TERMINAL_STATUSES

HEADLINE_MAX_CHARS = 1_000
RESTART_PATIENCE_S = 60.0
"""A server that is started anew may be away for so long."""


def jobs(call: Call) -> None:
    """List the jobs, newest first."""
    found = sorted(call.client.jobs(), key=lambda job: job["start-time"], reverse=True)
    call.answer(found, _show_jobs if found else "No jobs. Submit one with: slotwise submit GRAPH.yaml")


def _show_jobs(found: list[dict[str, Any]]) -> None:
    columns: Columns = {
        "id": lambda job: job["jid"],
        "~name": lambda job: job["name"],
        "state": state_of,
        **time_column("submitted", "start-time", found),
        ">for": lambda job: format_ms(job["duration"]),
    }
    show_table(columns, found)
    for job in found:
        if job.get("unreadable"):
            say(f"{job['name']} cannot be read by this server: {job['unreadable']}")
        if failure := last_failure_line(job):
            say_wrapped(f"{job['name']}: {failure}")


def state_of(job: dict[str, Any]) -> str:
    """For people: a job that is started again after a failure is CREATED in Flink's API, as one that never ran. So is a
    program that has begun and has not started its queries yet: that one is shown so."""
    if job.get("unreadable"):
        return f"{job['state']} (unreadable)"
    has_begun = job.get("schedulerState") in ("Executing", "Rescaling")
    restarts = job["state"] == "CREATED" and job.get("lastFailure") and not has_begun
    return "RESTARTING" if restarts else str(job["state"])


def last_failure_line(job: dict[str, Any]) -> str | None:
    """Why the attempt before failed, if the job has not got over it."""
    failure = job.get("lastFailure")
    if not failure:
        return None
    return f"attempt {failure['attempt']} failed at {format_moment(failure['timestampInMillis'])}: {headline(failure)}"


def show(job: JobArgument, call: Call) -> None:
    """Show one job: its state and, per vertex, the bounds, the parallelism in force, and how far a batch job is."""
    job_id = call.client.find_job(job)
    details = call.client.get(f"/jobs/{job_id}")
    bounds = declared_bounds(call.client, job_id, ended=details["state"] in TERMINAL_STATUSES)
    call.answer({**details, "resourceRequirements": bounds}, _show_job)


def _show_job(details: dict[str, Any]) -> None:
    for line in heading(details):
        say_wrapped(line)

    def bound(vertex: dict[str, Any], name: str) -> object:
        return details["resourceRequirements"].get(vertex["id"], {}).get("parallelism", {}).get(name)

    progress: Columns = {
        ">done": lambda vertex: format_percent((vertex.get("progress") or {}).get("percent")),
        ">rest": lambda vertex: format_rest((vertex.get("progress") or {}).get("estimatedRestInMillis")),
    }
    columns: Columns = {
        "~vertex": lambda vertex: vertex["name"],
        ">lower": lambda vertex: bound(vertex, "lowerBound"),
        ">upper": lambda vertex: bound(vertex, "upperBound"),
        ">parallelism": deployed_parallelism,
        ">max": lambda vertex: vertex["maxParallelism"],
        "state": lambda vertex: vertex["status"],
        **(progress if details.get("job-type") == "BATCH" else {}),
        "id": lambda vertex: vertex["id"],
    }
    show_table(columns, details["vertices"])


def declared_bounds(client: Client, job_id: str, *, ended: bool) -> dict[str, Any]:
    """The bounds of a job, which those of a job that has ended are told with its explanation only (as in Flink)."""
    if not ended:
        return dict(client.get(f"/jobs/{job_id}/resource-requirements"))
    vertices = client.get(f"/jobs/{job_id}/explanation")["vertices"]
    return {
        vertex: {"parallelism": {bound: told[bound] for bound in ("lowerBound", "upperBound")}}
        for vertex, told in vertices.items()
    }


def heading(details: dict[str, Any]) -> list[str]:
    """Name, state and id of a job; when it was submitted and entered its state; what runs it."""
    state = state_of(details)
    phase = details.get("schedulerState")
    ended = details["end-time"] >= 0
    since = details["timestamps"].get(details["state"]) or details["start-time"]
    if details["state"] == "RUNNING":
        # The timestamp is that of the last rescale, if there has been any since.
        since = min((each.get("start-time", since) for each in details["vertices"]), default=since)
    lines = [
        f"{details['name']}  {state}{f' ({phase})' if phase and not ended else ''}  {details['jid']}",
        f"submitted {format_moment(details['start-time'])}"
        + (f" by {details['submittedBy']}" if details.get("submittedBy") else "")
        + (", ended " if ended else f", {state} since ")
        + format_moment(details["end-time"] if ended else since),
    ]
    running = [
        f"{word} {details[key]}"
        for word, key in (
            ("attempt", "attempt"),
            ("driver process", "driverPid"),
            ("Spark's page", "sparkUi"),
        )
        if details.get(key) and not ended
    ]
    failure = last_failure_line(details)
    home = details.get("workingDirectory")
    return [
        *lines,
        *([", ".join(running)] if running else []),
        *([f"working directory {home}"] if home else []),
        *([failure] if failure else []),
    ]


def deployed_parallelism(vertex: dict[str, Any]) -> int | None:
    """The parallelism that a vertex runs with, None while it has no tasks (then only one is planned)."""
    return int(vertex["parallelism"]) if any(vertex["tasks"].values()) else None


def explain(job: JobArgument, call: Call) -> None:
    """Print the slots and parallelism that the job wants, holds and uses, and the reasons for differences."""
    call.answer(call.client.get(f"/jobs/{call.client.find_job(job)}/explanation"), _show_explanation)


def _show_explanation(explanation: dict[str, Any]) -> None:
    phase = None if explanation["status"] in TERMINAL_STATUSES else explanation.get("schedulerState")
    say(
        f"{explanation['name']}  {explanation['status']}{f' ({phase})' if phase else ''}  {explanation['jid']}"
    )
    for sentence in explanation_lines(explanation):
        say_wrapped(sentence)
    last_ms = explanation.get("lastBatchTimestampInMillis")
    if last_ms is not None and last_ms > 0:
        ago = format_ms(max(0.0, time.time() * 1000 - last_ms))
        say(f"The last batch was committed at {format_moment(last_ms)}, {ago} ago.")


def explanation_lines(explanation: dict[str, Any]) -> list[str]:
    """The sentences of an explanation, violations marked as such."""
    lines = [str(sentence) for sentence in explanation.get("sentences") or []]
    lines += [f"Violated: {violation}" for violation in explanation.get("violations") or []]
    return lines or ["Everything that is wanted is in force."]


def exceptions(
    job: JobArgument,
    call: Call,
    stack: Annotated[bool, typer.Option("--stack", help="With the stack traces.")] = False,
) -> None:
    """List what went wrong in a job, newest first."""
    answer = call.client.get(f"/jobs/{call.client.find_job(job)}/exceptions")
    call.answer(answer, partial(_show_exceptions, stack=stack))


def _show_exceptions(answer: dict[str, Any], *, stack: bool) -> None:
    entries: list[dict[str, Any]] = answer["exceptionHistory"]["entries"]
    if not entries:
        say("No exceptions.")
    for entry in entries:
        where = entry.get("taskName") or "the job"
        say_wrapped(f"{format_moment(entry['timestamp'])}  {where}: {headline(entry)}")
        labels: dict[str, str] = entry.get("failureLabels") or {}
        if labels.get("failover") == "local":
            say("  only its query was restarted")
        if why := labels.get("why"):
            say_wrapped(f"  {why}")
        if stack:
            say(str(entry.get("stacktrace") or "").rstrip())
        for other in entry.get("concurrentExceptions") or []:
            say_wrapped(f"  with it, in {other.get('taskName') or 'the job'}: {headline(other)}")
    if answer["exceptionHistory"].get("truncated"):
        say("Older ones are not kept.")


def headline(entry: dict[str, Any]) -> str:
    """The first line of an exception's message, cut where nobody reads on; `exceptions --stack` has all of it."""
    lines = str(entry.get("message") or entry.get("stacktrace") or "").strip().splitlines()
    line = lines[0] if lines else str(entry.get("exceptionName") or "unknown")
    return line if len(line) <= HEADLINE_MAX_CHARS else line[:HEADLINE_MAX_CHARS].rstrip() + " ..."


def status_of(client: Client, job_id: str) -> str:
    return str(client.get(f"/jobs/{job_id}/status")["status"])


def ended_as(client: Client, job_id: str, state: str) -> CliError:
    """What to say of a job that ended as ``state`` where it should have run."""
    entries = client.get(f"/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"]
    reason = headline(entries[0]) if entries else "no exception is on record"
    return CliError(f"The job {job_id} ended as {state}: {reason}")


@contextlib.contextmanager
def accepted(client: Client, sentence: str, within_s: float | None = None) -> Iterator[None]:
    """Wait in this block for what the server has accepted, even if it is started anew meanwhile. ``sentence`` is said
    if the waiting is broken off. ``within_s``: for how long is waited at most."""
    until_s = time.monotonic() + (math.inf if within_s is None else within_s)
    try:
        with client.outlasting(RESTART_PATIENCE_S, until_s):
            yield
    except CliError as error:
        if not is_away(error):
            raise
        kind = TimeIsOver if time.monotonic() >= until_s else NoServer
        raise kind(*error.errors, sentence) from None
    except KeyboardInterrupt:
        warn(sentence)
        raise


def cancel(job: JobArgument, call: Call, wait: WaitOption = False) -> None:
    """Cancel a job at once; the batch in flight is given up."""
    client, job_id = call.client, call.client.find_job(job, "change")
    client.request("PATCH", f"/jobs/{job_id}", params={"mode": "cancel"})
    with accepted(client, f"The cancel of job {job_id} was accepted and continues."):
        state = wait_until_ended(client, job_id) if wait else status_of(client, job_id)
    call.answer({"jobid": job_id, "status": state}, f"{job_id} is {state}.")
    if wait and state != "CANCELED":
        raise CliError(f"The job ended as {state} before it could be cancelled.")


def stop(job: JobArgument, call: Call, wait: WaitOption = False) -> None:
    """Stop a job after the batch in flight, with a complete checkpoint."""
    client, job_id = call.client, call.client.find_job(job, "change")
    trigger_id = str(client.request("POST", f"/jobs/{job_id}/stop", body={})[0]["request-id"])
    told = {"jobid": job_id, "request-id": trigger_id}
    if not wait:
        call.answer(told, f"{job_id} stops after its batch in flight.")
        return
    with accepted(client, f"The stop of job {job_id} was accepted and continues."):
        location = wait_until_stopped(client, job_id, trigger_id)
        state = wait_until_ended(client, job_id)
    told |= {"status": state, "location": location}
    call.answer(told, f"{job_id} is {state}; checkpoint: {location}")
    if state != "FINISHED":
        raise CliError(f"The job ended as {state}, not FINISHED.")


def wait_until_stopped(client: Client, job_id: str, trigger_id: str) -> str:
    """Wait for a stop operation; the location of the checkpoint.

    Raises:
        CliError: the stop failed, with the server's reason.
    """
    with JobChanges(client, job_id) as changes:
        while (answer := client.get(f"/jobs/{job_id}/savepoints/{trigger_id}"))["status"][
            "id"
        ] != "COMPLETED":
            changes.wait()
    operation = answer.get("operation") or {}
    cause = operation.get("failure-cause")
    if cause:
        text = cause.get("stack-trace") if isinstance(cause, dict) else cause
        raise CliError(f"The stop failed: {str(text).strip().splitlines()[0]}")
    return str(operation.get("location") or "")


def wait_until_ended(client: Client, job_id: str) -> str:
    """Wait for a terminal status and return it; progress goes to stderr when a person watches."""
    last = ""
    with JobChanges(client, job_id) as changes:
        while (state := status_of(client, job_id)) not in TERMINAL_STATUSES:
            if state != last and is_terminal():
                warn(f"{state} ...")
            last = state
            changes.wait()
    return state


def forget(job: JobArgument, call: Call) -> None:
    """Delete a job that has ended, with its history."""
    job_id = call.client.find_job(job, "delete")
    call.client.request("DELETE", f"/jobs/{job_id}")
    call.answer({"jobid": job_id, "forgotten": True}, f"{job_id} is forgotten.")
