"""Write the parts of docs/states.md and docs/states/*.md that follow from the transition table.

    python docs/generate_states.py            write them
    python docs/generate_states.py --check    say which are not current, and exit with 1

What stands between the two marker lines of a page is made here from `app.scheduler.transitions`; the rest of a page
is written by hand, and every state has one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from pages import DOCS, PageError, renewed, run

from app.scheduler.adaptive.draft import ENTRY, STATUS
from app.scheduler.step import TABLE
from app.scheduler.transitions import CANCELING, FAILING, FINISHED, PHASES

BEGIN = "<!-- generated from the transition table by docs/generate_states.py: begin -->"

ENDS = (FAILING, CANCELING, FINISHED)

EVENT_WORDS = {
    ENTRY: "at once",
    "StartScheduling": "submitted",
    "RequirementsUpdated": "PUT",
    "ScalingPolicyUpdated": "policy",
    "SlotShareUpdated": "slot share",
    "SlotsChanged": "slots",
    "AttemptRunning": "driver runs",
    "StateRepartitioned": "state partitions",
    "GraphAnalysed": "graph analysed",
    "QueryStarted": "query started",
    "QueryEnded": "query ended",
    "AttemptStartFailed": "start failed",
    "BatchCompleted": "batch committed",
    "RegionFailed": "region failed",
    "RegionFinished": "region finished",
    "PlanApplied": "plan applied",
    "AttemptFailed": "failure",
    "QueryFailed": "query failed",
    "QueryRecovered": "query recovered",
    "DriverContact": "driver heard",
    "AttemptMisplaced": "another cluster",
    "AttemptStopped": "driver stopped",
    "AttemptFinished": "sources exhausted",
    "TimerFired": "timer",
    "CancelRequested": "cancel",
    "StopRequested": "stop",
    "VersionRequested": "new version",
    "EnvironmentReady": "environment of it ready",
    "GlobalFailure": "global failure",
}
"""Short labels of the event classes in the diagrams."""


class Edge(NamedTuple):
    """One edge of the table. ``target`` equals ``source`` where the phase is not left."""

    source: str
    event: str
    target: str
    when: str


EDGES = [
    Edge(source, event, target, when)
    for (source, event), row in TABLE.items()
    for target, when in row.edges.items()
]


def page_name(phase: str) -> str:
    """CreatingExecutionGraph -> creating-execution-graph.md"""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", phase).lower() + ".md"


def diagram(edges: Iterable[Edge], *, start: bool) -> str:
    """A mermaid state diagram with one arrow for each pair of states, labelled with the events that take it."""
    words: dict[tuple[str, str], list[str]] = {}
    for edge in edges:
        if edge.source != edge.target:
            labels = words.setdefault((edge.source, edge.target), [])
            if EVENT_WORDS[edge.event] not in labels:
                labels.append(EVENT_WORDS[edge.event])
    lines = ["```mermaid", "stateDiagram-v2"]
    if start:
        lines.append("    [*] --> Created")
    lines += [f"    {source} --> {target}: {', '.join(labels)}" for (source, target), labels in words.items()]
    if not start:
        lines.append("    Finished --> [*]")
    return "\n".join([*lines, "```"])


def overview() -> str:
    """The generated part of states.md."""
    inner = [edge for edge in EDGES if edge.target not in ENDS]
    ways_out = [edge for edge in EDGES if edge.target in ENDS]
    rows = [
        f"| [{phase}](states/{page_name(phase)}) | {STATUS.get(phase, 'FINISHED, CANCELED or FAILED')} "
        f"| {sum(1 for source, event in TABLE if source == phase and event != ENTRY)} |"
        for phase in PHASES
    ]
    return "\n".join(
        [
            "## Life cycle",
            "",
            diagram(inner, start=True),
            "",
            "## Ends",
            "",
            "`suspend` leads from every state to Finished; the diagram leaves it out.",
            "",
            diagram(ways_out, start=False),
            "",
            "## All states",
            "",
            "| state | job status | events it takes |",
            "|---|---|---|",
            *rows,
        ]
    )


def phase_table(phase: str) -> str:
    """The generated part of the page of ``phase``: where events lead, where it is entered from, what is refused."""
    rows = [
        f"| {'at once' if edge.event == ENTRY else f'`{edge.event}`'} "
        f"| {'stays' if edge.target == phase else f'[{edge.target}]({page_name(edge.target)})'} | {edge.when} |"
        for edge in EDGES
        if edge.source == phase
    ]
    sources = dict.fromkeys(edge.source for edge in EDGES if edge.target == phase and edge.source != phase)
    entered = ", ".join(f"[{source}]({page_name(source)})" for source in sources)
    refused = [f"`{event}`" for event in EVENT_WORDS if event != ENTRY and (phase, event) not in TABLE]
    return "\n".join(
        [
            "## Events",
            "",
            f"Entered from: {entered or 'submission'}.",
            "",
            "| event | leads to | when |",
            "|---|---|---|",
            *rows,
            "",
            f"Refused, with the state unchanged: {', '.join(refused) or 'nothing'}.",
        ]
    )


def pages() -> dict[Path, str]:
    """Every page, with the text that it must have."""
    texts = {DOCS / "states.md": renewed(DOCS / "states.md", BEGIN, overview())}
    for phase in PHASES:
        page = DOCS / "states" / page_name(phase)
        texts[page] = renewed(page, BEGIN, phase_table(phase))
    for page in (DOCS / "states").glob("*.md"):
        if page not in texts:
            raise PageError(f"{page} belongs to no state.")
    return texts


def main(arguments: list[str] | None = None) -> int:
    return run(__doc__, "generate_states.py", pages, arguments)


if __name__ == "__main__":
    sys.exit(main())
