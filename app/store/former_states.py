"""States of jobs as earlier versions of Slotwise stored them, in the form of this one."""

from __future__ import annotations

from typing import Any, Final

PARTS: Final[dict[str, dict[str, str]]] = {
    "supply": {
        "declared_slots": "declared",
        "declared_minimal": "minimal",
        "allowed": "allowed",
        "slots_reason": "reason",
        "slots_coming": "coming",
        "slots_stayed": "stayed",
        "slots_changed_ms": "changed_ms",
        "away_since_ms": "away_since_ms",
        "idle_since_ms": "idle_since_ms",
        "cap_raise": "cap_raise",
    },
    "driver": {
        "attempt_alive": "alive",
        "driver_waiting": "waits",
        "started": "started",
        "fixed": "fixed",
    },
    "recovery": {
        "restart": "strategy",
        "creation_retry": "creation",
        "failures": "failures",
        "user_errors": "user_errors",
        "local": "local",
        "num_restarts": "num_restarts",
    },
    "trial": {"watch": "watch", "taken_back": "taken_back", "unproven": "unproven"},
    "partitions": {
        "max_parallelism": "numbers",
        "repartition": "repartition",
        "repartition_refused": "refused",
    },
}
"""Parts of a state, and what stood for their fields before there were parts (format 1)."""


def in_form_of_now(state: dict[str, Any]) -> dict[str, Any]:
    """``state``, which an earlier version has stored, as this one would store it.

    Raises:
        LookupError, TypeError, AttributeError: it is none.
    """
    if "pending" in state:
        _queue_pending(state)
    for part, names in PARTS.items():
        state[part] = {new: state.pop(old) for old, new in names.items() if old in state}
    return state


def _queue_pending(state: dict[str, Any]) -> None:
    """Bounds that waited for a deadline were declared at once, and the former ones stood beside them."""
    requirements = state["requirements"]
    declared, numbers = dict(requirements["bounds"]), dict(requirements.get("state_partitions", ()))
    state["queued"] = []
    for one in state.pop("pending"):
        if one["deadline"] is None:
            continue
        former, former_numbers = dict(one["former"]), dict(one.get("former_partitions", ()))
        begun, taken_back = one.pop("begun", False), one.pop("taken_back", None)
        change = {name: one.pop(name, ()) for name in ("former", "former_partitions")}
        one["bounds"] = [(vertex, declared[vertex]) for vertex in former if vertex in declared]
        one["partitions"] = [(vertex, numbers[vertex]) for vertex in former if vertex in numbers]
        if begun:
            one["begun"] = {
                "version": one["version"],
                "record": one["record"],
                "taken_back": taken_back,
            } | change
        else:
            state["taken_back"] = state.get("taken_back") or taken_back
            requirements["bounds"] = [
                (vertex, former.get(vertex, own)) for vertex, own in requirements["bounds"]
            ]
            kept = [pair for pair in requirements.get("state_partitions", ()) if pair[0] not in former]
            requirements["state_partitions"] = [*kept, *former_numbers.items()]
        if one["bounds"]:
            state["queued"].append(one)
