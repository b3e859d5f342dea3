"""What the arbiter has decided of a job, in words."""

from __future__ import annotations

from app.model.sentences import duration_in_words
from app.model.slot_share import SlotShare
from app.scheduler.arbiter import Allotment, Why


def reason_of(allotment: Allotment, share: SlotShare, total: int) -> str | None:
    """Why a job gets or gives slots, for its rescale record; None if it may have all that it asks for, or all that
    there are."""
    of_all = f"{allotment.share} of {total} slot(s) ({share.in_words()})"
    match allotment.why:
        case Why.OVER_CAP | Why.CAPPED:
            return f"Its cap is {share.cap} slot(s)."
        case Why.GIVES:
            return f"Another job is below its lower bounds; the share of this one is {of_all}."
        case Why.EVENS_OUT:
            return f"Shares are evened out: that of this job is {of_all}."
        case Why.SHARE | Why.GROWING | Why.HOLDS | Why.KEEPS if allotment.share < total:
            return f"Its share is {of_all}."
        case _:
            return None


def sentences_of(allotment: Allotment, share: SlotShare, *, held: int, total: int, now_ms: int) -> list[str]:
    """For the explanation of a job that holds ``held`` of ``total`` slots."""
    if allotment.why is Why.SHARE and allotment.share == total:
        # There are no more, which is told elsewhere; nobody else has to do with it.
        return []
    sentence = _of_one_that_waits(allotment, share) or _of_one_that_has(allotment, share, held, now_ms)
    rank = f"It is number {allotment.rank} of {allotment.waiting} jobs that wait to be started."
    return [*([] if sentence is None else [sentence]), *[rank] * (allotment.waiting > 1)]


def _of_one_that_waits(allotment: Allotment, share: SlotShare) -> str | None:
    match allotment.why:
        case Why.NO_ROOM:
            return (
                f"Its lower bounds need {allotment.missing} slot(s) more than are free or can be given back."
            )
        case Why.AFTER_OTHERS:
            return f"A job of a higher priority than {share.priority} waits for room, and comes first."
        case Why.CAP_TOO_LOW:
            return f"Its cap of {share.cap} slot(s) is below its lower bounds."
        case Why.ARRIVING:
            return "Other jobs are giving back slots that its lower bounds need."
        case _:
            return None


def _of_one_that_has(allotment: Allotment, share: SlotShare, held: int, now_ms: int) -> str | None:
    gives, more = held - allotment.allowed, held - allotment.share
    if share.cap is not None and held > share.cap and gives <= 0:
        return f"It holds {held} slot(s), more than its cap of {share.cap}, and cannot give any back while it runs."
    match allotment.why:
        case Why.OVER_CAP if gives > 0:
            return f"It gives {gives} slot(s) back: its cap is {share.cap}."
        case Why.CAPPED:
            return f"Its cap keeps it at {allotment.share} slot(s)."
        case Why.GIVES if gives > 0:
            return f"It gives {gives} slot(s) back: another job is below its lower bounds."
        case Why.EVENS_OUT if gives > 0:
            return f"It gives {gives} slot(s) back: another job has had less than its share for long enough."
        case Why.HOLDS if allotment.due_ms is not None:
            due = duration_in_words(allotment.due_ms - now_ms)
            return f"It holds {more} slot(s) more than its share; other jobs may have them in {due}."
        case Why.KEEPS:
            return f"It holds {more} slot(s) more than its share, and keeps them: it could give them by a restart only."
        case Why.GROWING:
            return f"Its share is {allotment.share} slots, some of which other jobs hold still."
        case Why.SHARE:
            words = share.in_words()
            return f"Its share of the slots is {allotment.share}, as other jobs want some too ({words})."
        case _:
            return None
