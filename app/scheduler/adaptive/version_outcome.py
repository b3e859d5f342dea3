"""What the state says of what becomes of a version of the job: it stays, is taken back, or is dropped (ADR 35)."""

from __future__ import annotations

from app.model.job_state.versions import Outcome
from app.model.value import evolve
from app.scheduler.adaptive.draft import Draft


def change_replacement(draft: Draft, **changes: object) -> None:
    """Note how far the version has come that is to take the place of another one."""
    versions = draft.state.versions
    assert versions.replacement is not None
    changed = evolve(versions.replacement, **changes)
    if changed != versions.replacement:
        draft.set(versions=evolve(versions, replacement=changed))


def prove(draft: Draft) -> None:
    """The version on trial stays."""
    one = draft.state.versions.replacement
    assert one is not None
    tell_outcome(draft, one.before, "REPLACED", f"By version {one.number}.")
    end_replacement(draft, "IN_FORCE", "")
    _forget_limits(draft, one.number)


def drop(draft: Draft) -> None:
    """The job is over: what waits does not come, and what is on trial stays what the job ran at."""
    one = draft.state.versions.replacement
    if one is None:
        return
    if one.stage in ("Builds", "Waits"):
        end_replacement(draft, "DROPPED", "The job ended first.")
    else:
        end_replacement(draft, "TRIAL", "The job ended before it had proven itself.")


def end_replacement(draft: Draft, outcome: Outcome, why: str, *, current: int | None = None) -> None:
    """No version is to take the place of another one any more. ``current``: the one in force, if it is another now."""
    versions = draft.state.versions
    assert versions.replacement is not None
    tell_outcome(draft, versions.replacement.number, outcome, why)
    versions = draft.state.versions
    draft.set(
        versions=evolve(versions, replacement=None, current=versions.current if current is None else current),
        spare=None,
    )


def tell_outcome(draft: Draft, number: int, outcome: Outcome, why: str = "") -> None:
    """Note what became of version ``number``."""
    versions = draft.state.versions
    notes = tuple(
        evolve(note, since_ms=draft.now_ms, outcome=outcome, why=why) if note.number == number else note
        for note in versions.notes
    )
    draft.set(versions=evolve(versions, notes=notes))


def _forget_limits(draft: Draft, number: int) -> None:
    """Limits of vertices that version ``number`` does not have are not needed for a way back any more."""
    state = draft.state
    gone = state.policy.gone_from(state.graph)
    if gone:
        policy = evolve(
            state.policy,
            version=state.policy.version + 1,
            vertices=tuple(one for one in state.policy.vertices if one[0] not in gone),
            reason=f"Version {number} of the job does not have {', '.join(gone)}.",
            changed_ms=draft.now_ms,
        )
        # The bounds that count are the same as before.
        known = tuple(evolve(one, policy_version=policy.version) for one in state.no_change)
        draft.tell(policy)
        draft.set(policy=policy, no_change=known)
