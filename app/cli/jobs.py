"""Commands about one job or all of them: jobs, show, explain, exceptions, cancel, stop, forget."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from app.cli.client import TERMINAL, Client
from app.cli.errors import CliError
from app.cli.options import JobArgument, JsonOption, ServerOption, TokenOption
from app.cli.output import format_ms, format_time, is_terminal, print_json, say, show_table, warn

POLL_S = 0.3


def jobs(as_json: JsonOption = False, server: ServerOption = None, token_file: TokenOption = None) -> None:
    """List the jobs, newest first."""
    with Client(server, token_file) as client:
        found: list[dict[str, Any]] = client.get("/jobs/overview")["jobs"]
    found.sort(key=lambda job: job["start-time"], reverse=True)
    if as_json:
        print_json(found)
        return
    if not found:
        say("No jobs. Submit one with: slotwise submit GRAPH.yaml")
        return
    rows = [
        [job["jid"], job["name"], job["state"], format_time(job["start-time"]), format_ms(job["duration"])]
        for job in found
    ]
    show_table(["id", "name", "state", "submitted", "for"], rows, right=["for"])


def show(
    job: JobArgument, as_json: JsonOption = False, server: ServerOption = None, token_file: TokenOption = None
) -> None:
    """Show one job: its state and, per vertex, the bounds and the parallelism in force."""
    with Client(server, token_file) as client:
        job_id = client.find_job(job)
        details = client.get(f"/jobs/{job_id}")
        bounds = (
            client.get(f"/jobs/{job_id}/resource-requirements") if details["state"] not in TERMINAL else {}
        )
    if as_json:
        print_json({**details, "resourceRequirements": bounds})
        return
    say(f"{details['name']}  {details['state']}  {details['jid']}")
    since = details["timestamps"].get(details["state"]) or details["start-time"]
    ended = "" if details["end-time"] < 0 else f", ended {format_time(details['end-time'])}"
    submitted = format_time(details["start-time"])
    say(f"submitted {submitted}{ended}, {details['state']} since {format_time(since)}")
    rows = []
    for vertex in details["vertices"]:
        declared = bounds.get(vertex["id"], {}).get("parallelism", {})
        rows.append(
            [
                vertex["name"],
                str(declared.get("lowerBound", "")),
                str(declared.get("upperBound", "")),
                in_force(vertex),
                str(vertex["maxParallelism"]),
                vertex["status"],
                vertex["id"],
            ]
        )
    headers = ["vertex", "lower", "upper", "parallelism", "max", "state", "id"]
    show_table(headers, rows, right=["lower", "upper", "parallelism", "max"])


def in_force(vertex: dict[str, Any]) -> str:
    """The parallelism of a vertex as text; `-` where nothing of it is deployed."""
    parallelism = deployed_parallelism(vertex)
    return "-" if parallelism is None else str(parallelism)


def deployed_parallelism(vertex: dict[str, Any]) -> int | None:
    """The parallelism that a vertex runs with, None while it has no tasks (then only one is planned)."""
    return int(vertex["parallelism"]) if any(vertex["tasks"].values()) else None


def explain(
    job: JobArgument, as_json: JsonOption = False, server: ServerOption = None, token_file: TokenOption = None
) -> None:
    """Say what the job wants, holds and runs with, and why these differ."""
    with Client(server, token_file) as client:
        explanation = client.get(f"/jobs/{client.find_job(job)}/explanation")
    if as_json:
        print_json(explanation)
        return
    for sentence in explanation_lines(explanation):
        say(sentence)


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
        say(f"{format_time(entry['timestamp'])}  {entry.get('taskName') or 'the job'}: {headline(entry)}")
        if stack:
            say(str(entry.get("stacktrace") or "").rstrip())
        for other in entry.get("concurrentExceptions") or []:
            say(f"  with it, in {other.get('taskName') or 'the job'}: {headline(other)}")
    if answer["exceptionHistory"].get("truncated"):
        say("Older ones are not kept.")


def headline(entry: dict[str, Any]) -> str:
    """The first line of an exception's message."""
    lines = str(entry.get("message") or entry.get("stacktrace") or "").strip().splitlines()
    return lines[0] if lines else str(entry.get("exceptionName") or "unknown")


def cancel(
    job: JobArgument,
    wait: Annotated[bool, typer.Option("--wait", help="Return once the job has ended.")] = False,
    as_json: JsonOption = False,
    server: ServerOption = None,
    token_file: TokenOption = None,
) -> None:
    """Cancel a job at once; the batch in flight is given up."""
    with Client(server, token_file) as client:
        job_id = client.find_job(job)
        client.request("PATCH", f"/jobs/{job_id}", params={"mode": "cancel"})
        state = wait_until_ended(client, job_id) if wait else client.get(f"/jobs/{job_id}/status")["status"]
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
        job_id = client.find_job(job)
        answer, _ = client.request("POST", f"/jobs/{job_id}/stop", body={})
        trigger_id = str(answer["request-id"])
        if not wait:
            if as_json:
                print_json({"jobid": job_id, "request-id": trigger_id})
            else:
                say(f"{job_id} stops after its batch in flight.")
            return
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
    while True:
        answer = client.get(f"/jobs/{job_id}/savepoints/{trigger_id}")
        if answer["status"]["id"] == "COMPLETED":
            operation = answer.get("operation") or {}
            cause = operation.get("failure-cause")
            if cause:
                text = cause.get("stack-trace") if isinstance(cause, dict) else cause
                raise CliError(f"The stop failed: {str(text).strip().splitlines()[0]}")
            return str(operation.get("location") or "")
        time.sleep(POLL_S)


def wait_until_ended(client: Client, job_id: str) -> str:
    """Wait for a terminal status and return it; progress goes to stderr when a person watches."""
    last = ""
    while True:
        state = str(client.get(f"/jobs/{job_id}/status")["status"])
        if state in TERMINAL:
            return state
        if state != last and is_terminal():
            warn(f"{state} ...")
        last = state
        time.sleep(POLL_S)


def forget(
    job: JobArgument, as_json: JsonOption = False, server: ServerOption = None, token_file: TokenOption = None
) -> None:
    """Delete a job that has ended, with its history."""
    with Client(server, token_file) as client:
        job_id = client.find_job(job)
        client.request("DELETE", f"/jobs/{job_id}")
    if as_json:
        print_json({"jobid": job_id, "forgotten": True})
    else:
        say(f"{job_id} is forgotten.")
