"""`slotwise submit`: a graph file and what lies beside it, sent to the server."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from app.cli.client import TERMINAL, Client
from app.cli.errors import CliError, UsageError
from app.cli.jobs import POLL_S, headline
from app.cli.options import JsonOption, ServerOption, TokenOption
from app.cli.output import is_terminal, print_json, say, warn


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a key that is written twice is an error, as in the server's own reading."""


def _mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        name = str(key.value)
        if name in seen:
            line = key.start_mark.line + 1
            raise yaml.constructor.ConstructorError(
                None, None, f"line {line}: the key {name!r} is written twice"
            )
        seen.add(name)
    return loader.construct_mapping(node, deep=True)


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def submit(
    graph: Annotated[
        Path, typer.Argument(metavar="GRAPH.yaml", show_default=False, help="The job graph document.")
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Return once the job runs.")] = False,
    as_json: JsonOption = False,
    server: ServerOption = None,
    token_file: TokenOption = None,
) -> None:
    """Submit a job. Relative paths in the graph, and its artifacts, are looked up beside the graph file."""
    document = read_graph(graph)
    artifacts = read_artifacts(document, graph.parent)
    with Client(server, token_file) as client:
        job_id = send(client, document, artifacts)
        state = wait_until_running(client, job_id) if wait else "accepted"
    if as_json:
        print_json({"jobid": job_id, "jobUrl": f"/jobs/{job_id}", "state": state})
    elif wait:
        say(f"{job_id} is {state}.")
    else:
        say(job_id)


def read_graph(path: Path) -> dict[str, Any]:
    """The graph document of a YAML or JSON file, its relative paths made absolute.

    Raises:
        UsageError: the file cannot be read, or is not a mapping.
    """
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)  # noqa: S506
    except OSError as error:
        raise UsageError(f"The graph {path} cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        text = " ".join(str(error).split())
        raise UsageError(f"The graph {path} is not valid YAML: {text}.") from None
    if not isinstance(document, dict):
        raise UsageError(f"The graph {path} should be a mapping with name, type and vertices.")
    resolve_paths(document, path.parent.absolute())
    return document


def resolve_paths(document: dict[str, Any], folder: Path) -> None:
    """Make the `path` of each source and sink absolute, seen from ``folder``. URLs stay as they are."""
    vertices = document.get("vertices")
    for vertex in vertices if isinstance(vertices, list) else []:
        for role in ("source", "sink"):
            operation = vertex.get(role) if isinstance(vertex, dict) else None
            if not isinstance(operation, dict):
                continue
            place = operation.get("path")
            if isinstance(place, str) and place and "://" not in place and not place.startswith("file:"):
                # normpath, not resolve: a link stays the path that the author wrote.
                resolved = os.path.normpath(folder / Path(place).expanduser())
                operation["path"] = resolved + ("/" if place.endswith("/") else "")


def read_artifacts(document: dict[str, Any], folder: Path) -> dict[str, bytes]:
    """The files that the graph lists under `artifacts`, by name, read from ``folder``.

    Raises:
        UsageError: one of them is not there.
    """
    names = document.get("artifacts") or []
    found: dict[str, bytes] = {}
    errors = []
    for name in names if isinstance(names, list) else []:
        if not isinstance(name, str):
            continue
        try:
            found[name] = (folder / name).read_bytes()
        except OSError as error:
            errors.append(f"The artifact {name} cannot be read from {folder.absolute()}: {error.strerror}.")
    if errors:
        raise UsageError(*errors)
    return found


def send(client: Client, document: dict[str, Any], artifacts: dict[str, bytes]) -> str:
    """Submit a graph with its artifacts and return the job's id."""
    if not artifacts:
        answer, _ = client.request("POST", "/jobs", body=document)
        return str(answer["jobid"])
    graph = json.dumps(document, allow_nan=False).encode()
    files = [("graph", ("graph.json", graph, "application/json"))]
    files += [("files", (name, content, "application/octet-stream")) for name, content in artifacts.items()]
    answer, _ = client.request("POST", "/jobs", files=files)
    return str(answer["jobid"])


def wait_until_running(client: Client, job_id: str) -> str:
    """Wait until the job runs (or has finished already) and return its status.

    Raises:
        CliError: it failed or was cancelled instead; with the reason.
    """
    last = ""
    while True:
        state = str(client.get(f"/jobs/{job_id}/status")["status"])
        if state in ("RUNNING", "FINISHED"):
            return state
        if state in TERMINAL:
            entries = client.get(f"/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"]
            reason = headline(entries[0]) if entries else "no exception is on record"
            raise CliError(f"The job {job_id} ended as {state}: {reason}")
        if state != last and is_terminal():
            warn(f"{state} ...")
        last = state
        time.sleep(POLL_S)
