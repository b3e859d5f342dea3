"""`slotwise members`: the servers that share the jobs."""

from __future__ import annotations

from typing import Any

from app.cli.options import Call
from app.cli.output import Columns, say, show_table, time_column


def members(call: Call) -> None:
    """List the servers that share the jobs, and how many jobs each of them owns."""
    call.answer(call.client.get("/cluster/members"), _show)


def _show(answer: dict[str, Any]) -> None:
    found = answer["members"]
    columns: Columns = {
        ">seat": lambda one: one["seat"],
        "state": lambda one: one["state"],
        # The one that decides about the slots of all.
        "arbiter": lambda one: "yes" if one["isArbiter"] else "",
        "url": lambda one: one["url"],
        "host": lambda one: one["host"],
        ">pid": lambda one: one["pid"],
        "version": lambda one: one["version"],
        # With a cluster servers have none of their own.
        ">slots": lambda one: None if one["cluster"] else one["slots"],
        ">jobs": lambda one: one["jobs"],
        **time_column("joined", "joinedTimestampInMillis", found),
    }
    show_table(columns, found)
    for cluster in sorted({one["cluster"] for one in found if one["cluster"]}):
        say(f"The slots are those of {cluster}.")
    if answer["alone"]:
        say(answer["alone"])
