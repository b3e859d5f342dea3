"""docs/states.md and docs/states/*.md are what the transition table says, and their links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from app.model.job_state import batch as progress
from app.scheduler.adaptive import (
    attempts,
    bounds_queue,
    executing,
    growth,
    in_place,
    local_failover,
    resources,
    slot_declaration,
    stops,
    transition_manager,
)
from app.scheduler.transitions import PHASES

DOCS = Path(__file__).parents[3] / "docs"


def script(docs: Path) -> ModuleType:
    """docs/generate_states.py as it is in ``docs``."""
    spec = importlib.util.spec_from_file_location("generate_states", DOCS / "generate_states.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.DOCS = docs  # type: ignore[attr-defined]
    return module


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The pages alone, in a docs directory of their own."""
    docs = tmp_path / "docs"
    shutil.copytree(DOCS / "states", docs / "states")
    shutil.copy(DOCS / "states.md", docs)
    return docs


def test_the_pages_are_current() -> None:
    assert script(DOCS).main(["--check"]) == 0, "run python docs/generate_states.py"


def test_a_page_that_is_not_current_is_found_and_made_current(copied: Path) -> None:
    page = copied / "states" / "rescaling.md"
    text = page.read_text()
    page.write_text(text.replace("every query has committed a batch at the target", "it feels like it"))
    generate = script(copied)
    assert generate.main(["--check"]) == 1
    assert generate.main([]) == 0
    assert page.read_text() == text
    assert generate.main(["--check"]) == 0


def test_a_missing_page_and_one_of_no_state_are_found(copied: Path) -> None:
    generate = script(copied)
    (copied / "states" / "dreaming.md").write_text("# Dreaming\n")
    assert generate.main(["--check"]) == 1
    (copied / "states" / "dreaming.md").unlink()
    assert generate.main(["--check"]) == 0
    (copied / "states" / "finished.md").unlink()
    assert generate.main(["--check"]) == 1


def test_every_state_has_a_page_that_says_what_to_look_for() -> None:
    generate = script(DOCS)
    for phase in PHASES:
        text = (DOCS / "states" / generate.page_name(phase)).read_text()
        assert text.startswith(f"# {phase}\n")
        assert ("## At 3 a.m." in text and "tatus `" in text) or phase == "Finished"


def test_the_timers_of_the_pages_are_those_of_the_core() -> None:
    known = {
        *transition_manager.TIMERS,
        stops.STOP_TIMER,
        executing.RESOURCE_TIMER,
        slot_declaration.IDLE_TIMER,
        in_place.APPLY_TIMER,
        local_failover.LOCAL_TIMER,
        progress.REGION_TIMER,
        stops.BACKOFF_TIMER,
        attempts.START_TIMER,
        resources.WAIT_TIMER,
        bounds_queue.DEADLINE_TIMER,
        growth.LATE_TIMER,
    }
    named = set()
    for page in (DOCS / "states").glob("*.md"):
        for table in re.findall(r"^\| timer \|.*\n(?:\|.*\n)+", page.read_text(), re.M):
            named |= set(re.findall(r"^\| `([a-z-]+)` \|", table, re.M))
    assert named == known


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in [DOCS / "states.md", *(DOCS / "states").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
