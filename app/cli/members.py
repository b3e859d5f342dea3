"""`slotwise members`: the servers that share the jobs."""

from __future__ import annotations

from typing import Any

from app.cli.client import Client
from app.cli.options import JsonOption, ServerOption, TokenOption
from app.cli.output import format_time, print_json, say, show_table, when_header

COLUMNS = ["seat", "state", "arbiter", "url", "host", "pid", "version", "slots", "jobs"]
RIGHT = ["seat", "pid", "slots", "jobs"]


def members(as_json: JsonOption = False, server: ServerOption = None, token_file: TokenOption = None) -> None:
    """List the servers that share the jobs, and how many jobs each of them owns."""
    with Client(server, token_file) as client:
        answer = client.get("/cluster/members")
    if as_json:
        print_json(answer)
        return
    found = answer["members"]
    joined = when_header("joined", [one["joinedTimestampInMillis"] for one in found])
    rows = [
        [_cell(one, name) for name in COLUMNS] + [format_time(one["joinedTimestampInMillis"])]
        for one in found
    ]
    show_table([*COLUMNS, joined], rows, right=RIGHT)
    for cluster in sorted({one["cluster"] for one in found if one["cluster"]}):
        say(f"The slots are those of {cluster}.")
    if answer["alone"]:
        say(answer["alone"])


def _cell(member: dict[str, Any], name: str) -> str:
    """The arbiter is the one that decides about the slots of all. With a cluster servers have none of their own."""
    if name == "arbiter":
        return "yes" if member["isArbiter"] else ""
    return "-" if name == "slots" and member["cluster"] else str(member[name])
