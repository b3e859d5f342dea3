"""`slotwise members`: the servers that share the jobs."""

from __future__ import annotations

from typing import Any

from app.cli.options import Call
from app.cli.output import format_time, say, show_table, when_header


def members(call: Call) -> None:
    """List the servers that share the jobs, and how many jobs each of them owns."""
    call.answer(call.client.get("/cluster/members"), _show)


def _show(answer: dict[str, Any]) -> None:
    found = answer["members"]
    columns = {
        ">seat": lambda one: one["seat"],
        "state": lambda one: one["state"],
        # The one that decides about the slots of all; that another is not says nothing of it.
        "arbiter": lambda one: "yes" if one["isArbiter"] else " ",
        "url": lambda one: one["url"],
        "host": lambda one: one["host"],
        ">pid": lambda one: one["pid"],
        "version": lambda one: one["version"],
        # With a cluster servers have none of their own.
        ">slots": lambda one: None if one["cluster"] else one["slots"],
        ">jobs": lambda one: one["jobs"],
        when_header("joined", [one["joinedTimestampInMillis"] for one in found]): lambda one: format_time(
            one["joinedTimestampInMillis"]
        ),
    }
    show_table(columns, found)
    for cluster in sorted({one["cluster"] for one in found if one["cluster"]}):
        say(f"The slots are those of {cluster}.")
    if answer["alone"]:
        say(answer["alone"])
