"""`slotwise members`: the servers that share the jobs."""

from __future__ import annotations

from app.cli.client import Client
from app.cli.options import JsonOption, ServerOption, TokenOption
from app.cli.output import format_time, print_json, say, show_table, when_header

COLUMNS = ["seat", "state", "url", "host", "pid", "version", "slots", "jobs"]
RIGHT = ["seat", "pid", "slots", "jobs"]
ALONE = "No other server can share these jobs: that takes a PostgreSQL database."


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
        [str(one[name]) for name in COLUMNS] + [format_time(one["joinedTimestampInMillis"])] for one in found
    ]
    show_table([*COLUMNS, joined], rows, right=RIGHT)
    if not answer["shared"]:
        say(ALONE)
