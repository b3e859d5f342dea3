"""Commands about one job or all of them: jobs, show, explain, exceptions, cancel, stop, forget."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from app.cli.client import Client
from app.cli.errors import CliError, NoServer
from app.cli.options import JobArgument, JsonOption, ServerOption, TokenOption
from app.cli.output import (
    format_moment,
    format_ms,
    format_percent,
    format_time,
    is_terminal,
    or_dash,
    print_json,
    say,
    say_wrapped,
    show_table,
    warn,
    when_header,
)
from app.cli.streams import JobChanges
from app.model.status import TERMINAL_STATUSES

HEADLINE_MAX_CHARS = 300
PROGRESS_HEADERS = ["done", "rest"]


def jobs(as_json: JsonOption = False, server: ServerOption = None, token_file: TokenOption = None) -> None:
    """List the jobs, newest first."""
    with Client(server, token_file) as client:
        found = client.jobs()
    found.sort(key=lambda job: job["start-time"], reverse=True)
    if as_json:
        print_json(found)
        return
    if not found:
        say("No jobs. Submit one with: slotwise submit GRAPH.yaml")
        return
    rows = [
        [job["jid"], job["name"], state_of(job), format_time(job["start-time"]), format_ms(job["duration"])]
        for job in found
    ]
    submitted = when_header("submitted", [job["start-time"] for job in found])
    show_table(["id", "name", "state", submitted, "for"], rows, right=["for"], wrap=["name"])
    for job in found:
        if job.get("unreadable"):
            say(f"{job['name']} cannot be read by this server: {job['unreadable']}")
        if failure := last_failure_line(job):
            say_wrapped(f"{job['name']}: {failure}")


def state_of(job: dict[str, Any]) -> str:
    """For people: a job that is started again after a failure is CREATED in Flink's API, as one that never ran."""
    if job.get("unreadable"):
        return f"{job['state']} (unreadable)"
    return "RESTARTING" if job["state"] == "CREATED" and job.get("lastFailure") else str(job["state"])


def last_failure_line(job: dict[str, Any]) -> str | None:
    """Why the attempt before failed, if the job has not got over it."""
    failure = job.get("lastFailure")
    if not failure:
        return None
    return f"attempt {failure['attempt']} failed at {format_moment(failure['timestampInMillis'])}: {headline(failure)}"


def show(
    job: JobArgument, as_json: JsonOption = False, server: ServerOption = None, token_file: TokenOption = None
) -> None:
    """Show one job: its state and, per vertex, the bounds, the parallelism in force, and how far a batch job is."""
    with Client(server, token_file) as client:
        job_id = client.find_job(job)
        details = client.get(f"/jobs/{job_id}")
        bounds = declared_bounds(client, job_id, ended=details["state"] in TERMINAL_STATUSES)
    if as_json:
        print_json({**details, "resourceRequirements": bounds})
        return
    for line in heading(details):
        say_wrapped(line)
    is_batch = details.get("job-type") == "BATCH"
    rows = []
    for vertex in details["vertices"]:
        declared = bounds.get(vertex["id"], {}).get("parallelism", {})
        rows.append(
            [
                vertex["name"],
                or_dash(declared.get("lowerBound")),
                or_dash(declared.get("upperBound")),
                or_dash(deployed_parallelism(vertex)),
                str(vertex["maxParallelism"]),
                vertex["status"],
                *(progress_cells(vertex) if is_batch else ()),
                vertex["id"],
            ]
        )
    more = PROGRESS_HEADERS if is_batch else []
    headers = ["vertex", "lower", "upper", "parallelism", "max", "state", *more, "id"]
    show_table(headers, rows, right=["lower", "upper", "parallelism", "max", *more], wrap=["vertex"])


def declared_bounds(client: Client, job_id: str, *, ended: bool) -> dict[str, Any]:
    """The bounds of a job, which those of a job that has ended are told with its explanation only (as in Flink)."""
    if not ended:
        return dict(client.get(f"/jobs/{job_id}/resource-requirements"))
    vertices = client.get(f"/jobs/{job_id}/explanation")["vertices"]
    return {
        vertex: {"parallelism": {bound: told[bound] for bound in ("lowerBound", "upperBound")}}
        for vertex, told in vertices.items()
    }


def progress_cells(vertex: dict[str, Any]) -> list[str]:
    """How far the region of a vertex is, and how long it may take still, under `PROGRESS_HEADERS`."""
    progress = vertex.get("progress") or {}
    return [
        or_dash(format_percent(progress.get("percent"))),
        # Nothing rests of what is finished.
        or_dash(format_ms(progress.get("estimatedRestInMillis") or None)),
    ]


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
    return [*lines, *([", ".join(running)] if running else []), *([failure] if failure else [])]


def deployed_parallelism(vertex: dict[str, Any]) -> int | None:
    """The parallelism that a vertex runs with, None while it has no tasks (then only one is planned)."""
    return int(vertex["parallelism"]) if any(vertex["tasks"].values()) else None


def explain(
    job: JobArgument, as_json: JsonOption = False, server: ServerOption = None, token_file: TokenOption = None
) -> None:
    """Print the slots and parallelism that the job wants, holds and uses, and the reasons for differences."""
    with Client(server, token_file) as client:
        explanation = client.get(f"/jobs/{client.find_job(job)}/explanation")
    if as_json:
        print_json(explanation)
        return
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
    stack: Annotated[bool, typer.Option("--stack", help="With the stack traces.")] = False,
    as_json: JsonOption = False,
    server: ServerOption = None,
    token_file: TokenOption = None,
) -> None:
    """List what went wrong in a job, newest first."""
    with Client(server, token_file) as client:
        answer = client.get(f"/jobs/{client.find_job(job)}/exceptions")
    if as_json:
        print_json(answer)
        return
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
def accepted(sentence: str) -> Iterator[None]:
    """Wait in this block for what the server has accepted; ``sentence`` is said if the waiting is broken off."""
    try:
        yield
    except NoServer as error:
        raise NoServer(*error.errors, sentence) from None
    except KeyboardInterrupt:
        warn(sentence)
        raise


def cancel(
    job: JobArgument,
    wait: Annotated[bool, typer.Option("--wait", help="Return once the job has ended.")] = False,
    as_json: JsonOption = False,
    server: ServerOption = None,
    token_file: TokenOption = None,
) -> None:
    """Cancel a job at once; the batch in flight is given up."""
    with Client(server, token_file) as client:
        job_id = client.find_job(job, "change")
        client.request("PATCH", f"/jobs/{job_id}", params={"mode": "cancel"})
        with accepted(f"The cancel of job {job_id} was accepted and continues."):
            state = wait_until_ended(client, job_id) if wait else status_of(client, job_id)
    if as_json:
        print_json({"jobid": job_id, "status": state})
    else:
        say(f"{job_id} is {state}.")
    if wait and state != "CANCELED":
        raise CliError(f"The job ended as {state} before it could be cancelled.")


def stop(
    job: JobArgument,
    wait: Annotated[bool, typer.Option("--wait", help="Return once the job has ended.")] = False,
    as_json: JsonOption = False,
    server: ServerOption = None,
    token_file: TokenOption = None,
) -> None:
    """Stop a job after the batch in flight, with a complete checkpoint."""
    with Client(server, token_file) as client:
        job_id = client.find_job(job, "change")
        answer, _ = client.request("POST", f"/jobs/{job_id}/stop", body={})
        trigger_id = str(answer["request-id"])
        if not wait:
            if as_json:
                print_json({"jobid": job_id, "request-id": trigger_id})
            else:
                say(f"{job_id} stops after its batch in flight.")
            return
        with accepted(f"The stop of job {job_id} was accepted and continues."):
            location = wait_until_stopped(client, job_id, trigger_id)
            state = wait_until_ended(client, job_id)
    if as_json:
        print_json({"jobid": job_id, "request-id": trigger_id, "status": state, "location": location})
    else:
        say(f"{job_id} is {state}; checkpoint: {location}")
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


def forget(
    job: JobArgument, as_json: JsonOption = False, server: ServerOption = None, token_file: TokenOption = None
) -> None:
    """Delete a job that has ended, with its history."""
    with Client(server, token_file) as client:
        job_id = client.find_job(job, "delete")
        client.request("DELETE", f"/jobs/{job_id}")
    if as_json:
        print_json({"jobid": job_id, "forgotten": True})
    else:
        say(f"{job_id} is forgotten.")
