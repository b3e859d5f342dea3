"""The transition table by pair: what `step` looks up, and what the diagram and the pages per state are made from."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from app.scheduler.adaptive.draft import ENTRY, Draft
from app.scheduler.adaptive.events import Event, RequirementsUpdated
from app.scheduler.transitions import PHASES, STAY, TRANSITIONS, Handler

EVENTS: Final = tuple(kind.__name__ for kind in Event.__args__)


@dataclass(frozen=True, slots=True)
class Row:
    """What the table says of one pair (phase, event). ``edges``: each phase that can follow, and when it does."""

    streaming: Handler | None
    batch: Handler | None
    edges: dict[str, str]


def _expanded() -> dict[tuple[str, str], Row]:
    """A row per pair, in the order of the phases and events. That a pair is there twice is a mistake."""
    found: dict[tuple[str, str], Row] = {}
    for (phases, events, handlers), edges in TRANSITIONS.items():
        streaming, batched = handlers if isinstance(handlers, tuple) else (handlers, handlers)
        for phase in (phases,) if isinstance(phases, str) else phases:
            for event in events if isinstance(events, tuple) else (events,):
                pair = (phase, ENTRY if event is ENTRY else event.__name__)
                if pair in found:
                    raise ValueError(f"The transition table has {pair} twice.")
                targets = {phase if target == STAY else target: when for target, when in edges.items()}
                found[pair] = Row(streaming, batched, targets)
    order = (ENTRY, *EVENTS)
    return dict(sorted(found.items(), key=lambda one: (PHASES.index(one[0][0]), order.index(one[0][1]))))


TABLE: Final = _expanded()
"""(phase kind, event kind or ENTRY) -> its row."""


def following(phase: str, event: str) -> Collection[str]:
    """The phases that can follow ``phase`` under ``event``."""
    row = TABLE.get((phase, event))
    return () if row is None else row.edges


def begin(draft: Draft) -> None:
    """Do what the phase of ``draft`` does at once when it is entered."""
    handler = TABLE[draft.state.phase.kind, ENTRY].streaming
    if handler is not None:
        handler(draft, None)


def hand_on(draft: Draft, event: RequirementsUpdated) -> None:
    """Give ``event``, which a rule has made, to the handler of the phase."""
    row = TABLE[draft.state.phase.kind, RequirementsUpdated.__name__]
    handler = row.batch if draft.state.graph.runs_by_regions else row.streaming
    assert handler is not None
    draft.trigger, draft.is_handled = RequirementsUpdated.__name__, True
    handler(draft, event)
