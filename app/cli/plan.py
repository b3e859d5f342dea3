"""`slotwise plan`: the job that a program or a graph file would be. Nothing is submitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.cli.client import Client
from app.cli.options import JsonOption, ServerOption, TokenOption
from app.cli.output import print_json, show_table
from app.cli.programs import ProgramOptions, planning, post, with_program_options
from app.cli.submit import JobFileArgument, read_submitted


@with_program_options
def plan(
    file: JobFileArgument,
    options: ProgramOptions,
    as_json: JsonOption = False,
    server: ServerOption = None,
    token_file: TokenOption = None,
) -> None:
    """Show the vertices that a job would have, with their bounds. The server runs a program up to where it waits for
    its queries, and starts none of them; nothing is submitted."""
    submitted = read_submitted(file, options)
    with Client(server, token_file) as client, planning(submitted):
        graph = post(client, submitted, dry_run=True)
    if as_json:
        print_json(graph)
        return
    show_table(
        ("vertex", "what", "inputs", "bounds", "state partitions"),
        [_row(vertex) for vertex in graph["vertices"]],
        right=("bounds", "state partitions"),
        wrap=("inputs",),
    )


def _row(vertex: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        vertex["name"],
        what_it_is(vertex),
        ", ".join(each["vertex"] for each in vertex.get("inputs", ())) or "-",
        f"{vertex['lowerBound']}:{vertex['parallelism']}",
        str(vertex["maxParallelism"]) if vertex["stateful"] else "-",
    )


def what_it_is(vertex: Mapping[str, Any]) -> str:
    """What a vertex of a resolved document does, in two words."""
    if "planned" in vertex:
        role, operator = vertex["planned"]["role"].lower(), vertex["planned"]["operator"]
        return str(operator) if role == "operator" else f"{role} {operator}"
    for end in ("source", "sink"):
        if end in vertex:
            return f"{end} {vertex[end]['format']}"
    return "SQL" if "sql" in vertex else f"Python {vertex['python']}"
