"""Stored texts: every value of the core comes back as it was, whatever it holds."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.model.job_state.changes import Change, Patch, TakenBack
from app.model.options import JobOptions
from app.model.requirements import Bounds, Deadline, OnTimeout
from app.model.rescale import TriggerCause
from app.scheduler.adaptive.state import Executing, JobState, Manager, Phase
from app.store import codec
from app.store.codec import CodecError
from app.store.former_states import PARTS
from tests.unit.store import samples

states = st.builds(
    JobState,
    graph=st.just(samples.GRAPH),
    options=st.just(samples.OPTIONS),
    phase=st.from_type(Phase),
)


@given(states)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_a_state_comes_back(state: JobState) -> None:
    assert codec.load_state(codec.dump_state(state), state.graph, state.options) == state


def test_every_phase_is_told_apart_by_its_kind() -> None:
    kinds = [kind.__dataclass_fields__["kind"].default for kind in get_args(Phase)]
    assert len(kinds) == len(set(kinds)) == len(get_args(Phase))


def test_options_and_bounds_come_back() -> None:
    options = dataclasses.replace(JobOptions())
    assert codec.OPTIONS.load(codec.OPTIONS.dump(options)) == options
    bounds = (("a" * 32, Bounds(1, 4)), ("b" * 32, Bounds(2, 2)))
    assert codec.BOUNDS.load(codec.BOUNDS.dump(bounds)) == bounds


def test_what_never_changes_is_not_stored_with_every_state() -> None:
    stored = json.loads(codec.dump_state(samples.state(samples.job_id(1))))
    assert {"graph", "options"} & set(stored) == set()
    fields = {field.name for field in dataclasses.fields(JobState)} - codec.STORED_ELSEWHERE
    assert set(stored) == fields | {"format"}


def test_what_a_newer_version_has_written_is_told_from_what_is_damaged() -> None:
    text = codec.dump_state(samples.state(samples.job_id(1)))
    newer = text.replace(f'"format":{codec.FORMAT}', f'"format":{codec.FORMAT + 1}')
    assert codec.is_newer(newer) and codec.is_newer(newer[:50])
    for of_this_or_an_earlier_version in (
        text,
        text[:50],
        text.replace(f'"format":{codec.FORMAT},', ""),
        "",
        "[1]",
    ):
        assert not codec.is_newer(of_this_or_an_earlier_version)


def test_a_state_of_an_older_version_is_completed_by_defaults() -> None:
    """A field that did not exist then takes its default, and one that exists no more is passed over."""
    state = samples.state(samples.job_id(1))
    older = json.loads(codec.dump_state(state))
    del older["supply"]["idle_since_ms"], older["driver"]["waits"], older["last_plan"]
    older["rung"] = older["phase"]["reuse_driver"] = "in-place"
    assert codec.load_state(json.dumps(older), state.graph, state.options) == state


def test_a_state_without_parts_is_read() -> None:
    """It was written by the version that had no parts; each of their fields has a value that is no default."""
    text = Path(__file__).with_name("state_format_1.json").read_text(encoding="utf-8")
    flat = json.loads(text)
    state = codec.load_state(text, samples.GRAPH, samples.OPTIONS)
    stored = json.loads(codec.dump_state(state))
    new_job = JobState("1", samples.GRAPH, samples.OPTIONS, state.requirements)
    defaults = json.loads(codec.dump_state(new_job))
    for part, names in PARTS.items():
        assert stored[part] == {new: flat[old] for old, new in names.items()}
        assert all(stored[part][name] != defaults[part][name] for name in names.values()), part
    for others in stored.keys() - PARTS.keys() - {"format"}:
        assert stored[others] == flat[others]


@pytest.mark.parametrize("shape", [{"indent": 2}, {"sort_keys": True}])
def test_a_state_that_somebody_has_mended_is_read_by_its_format(shape: dict[str, Any]) -> None:
    state = samples.state(samples.job_id(1))
    stored = json.loads(codec.dump_state(state))
    assert codec.load_state(json.dumps(stored, **shape), state.graph, state.options) == state
    stored["format"] = codec.FORMAT + 1
    with pytest.raises(CodecError, match="later version"):
        codec.load_state(json.dumps(stored, **shape), state.graph, state.options)


def without_parts(state: JobState) -> dict[str, object]:
    """``state`` as it was stored before it had parts."""
    stored = json.loads(codec.dump_state(state))
    del stored["format"]
    for part, names in PARTS.items():
        fields = stored.pop(part)
        stored |= {old: fields[new] for old, new in names.items()}
    return stored


def pending(version: int, vertex: str, upper: int, **changes: object) -> dict[str, object]:
    """What earlier versions stored of bounds that wait: ``vertex`` had 1 to ``upper`` before version ``version``."""
    return {
        **{"version": version, "record": version, "former": [[vertex, {"lower": 1, "upper": upper}]]},
        **{"deadline": {"at_ms": 9, "on_timeout": "COMMIT"}, "former_partitions": [[vertex, upper]]},
        **{"requested_by": "bob", "reason": "peak", "begun": False, "taken_back": None, **changes},
    }


def of_an_older_version(state: JobState, *waiting: dict[str, object]) -> str:
    stored = without_parts(state)
    del stored["queued"]
    return json.dumps({**stored, "pending": waiting}, separators=(",", ":"))


def test_bounds_that_wait_in_a_state_of_an_older_version_are_queued_and_the_former_ones_hold() -> None:
    flights, delays, enrich, _ = (one.id for one in samples.GRAPH.vertices)
    state = samples.state(samples.job_id(1), version=4)
    declared = tuple(
        (one, Bounds(1, upper)) for one, upper in zip(samples.GRAPH.by_id, (8, 9, 10, 11), strict=True)
    )
    numbers = ((flights, 8), (delays, 9))
    state = dataclasses.replace(
        state, requirements=dataclasses.replace(state.requirements, bounds=declared, state_partitions=numbers)
    )
    taken = TakenBack(((flights, 1),), ((flights, 2),), 1, TriggerCause.UPDATE_REQUIREMENT, 5, "It failed.")
    kept = json.loads(codec.Json(TakenBack, "what was taken back").dump(taken))
    text = of_an_older_version(
        state,
        pending(2, flights, 2, taken_back=kept),
        pending(3, delays, 3, begun=True, taken_back=kept, former_partitions=[]),
        pending(4, enrich, 5, deadline=None),
    )
    loaded = codec.load_state(text, state.graph, state.options)
    deadline = Deadline(9, OnTimeout.COMMIT)
    waits = Patch(2, 2, ((flights, Bounds(1, 8)),), deadline, ((flights, 8),), "bob", "peak")
    begun = Change(3, 3, ((delays, Bounds(1, 3)),), (), taken)
    assert loaded.queued == (
        waits,
        Patch(3, 3, ((delays, Bounds(1, 9)),), deadline, ((delays, 9),), "bob", "peak", begun),
    )
    assert dict(loaded.requirements.bounds) == dict(declared) | {flights: Bounds(1, 2)}
    assert dict(loaded.requirements.state_partitions) == {flights: 2, delays: 9}
    assert (loaded.requirements.version, loaded.requirements.uuid) == (4, state.requirements.uuid)
    assert loaded.trial.taken_back == taken
    queued_again = codec.load_state(codec.dump_state(loaded), state.graph, state.options)
    assert queued_again == loaded


def test_nothing_of_an_older_version_waits_but_bounds_with_a_deadline_of_vertices_that_there_are() -> None:
    state = samples.state(samples.job_id(1))
    gone = pending(2, "gone", 2, former_partitions=[])
    for waiting in ((), (pending(2, samples.GRAPH.vertices[0].id, 2, deadline=None),), (gone,)):
        text = of_an_older_version(state, *waiting)
        assert codec.load_state(text, state.graph, state.options) == state


@pytest.mark.parametrize("spoiled", ['{"pending":[{"version":2}]}', '{"requirements":[],"pending":[{', "5"])
def test_a_spoiled_state_of_an_older_version_is_named(spoiled: str) -> None:
    with pytest.raises(CodecError, match="job state cannot be read at"):
        codec.load_state(spoiled, samples.GRAPH, samples.OPTIONS)


def test_lone_surrogates_of_an_exception_do_not_stop_a_job() -> None:
    state = dataclasses.replace(
        samples.state(samples.job_id(1)), phase=Executing(Manager("Idling", 1)), job_id="bad \udcff name"
    )
    assert codec.load_state(codec.dump_state(state), state.graph, state.options).job_id == "bad ? name"


@pytest.mark.parametrize(
    ("load", "text", "place"),
    [
        (lambda text: codec.load_state(text, samples.GRAPH, samples.OPTIONS), "{}", "job state cannot be read at"),
        (lambda text: codec.load_state(text, samples.GRAPH, samples.OPTIONS), "no JSON", "cannot be read at its top"),
        (codec.BOUNDS.load, '[["v", {"lower": 0}]]', "set of bounds cannot be read at 0"),
        (codec.SPANS.load, '{"a": 1}', "list of scheduler states"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(load: object, text: str, place: str) -> None:
    assert callable(load)
    with pytest.raises(CodecError, match=place):
        load(text)


@pytest.mark.parametrize(
    ("text", "plain"),
    [(None, None), ("", ""), ("ascii", "ascii"), ("a\x00b", "a\ufffdb"), ("é", "é"), ("\ud800", "?")],
)
def test_texts_become_what_every_database_can_hold(text: str | None, plain: str | None) -> None:
    assert codec.plain_text(text) == plain
