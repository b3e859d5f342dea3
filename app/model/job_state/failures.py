"""Failures of a job, as its state has them; `restarting`, `repeated_errors` and `local_failover` have the rules."""

from __future__ import annotations

from dataclasses import field

from app.model.value import value


@value
class Failure:
    """A failure that the job met, for the exception history. ``vertex`` is a name, None for a global failure.

    ``local``: only its query was restarted. ``why``: a sentence on why it was taken as it was, may be empty.
    ``on_trial``: it came at a parallelism that was being tried. ``by_files``: as in `AttemptFailed`.
    """

    error: str
    at_ms: int
    attempt: int
    vertex: str | None = None
    stack: str | None = None
    local: bool = False
    why: str = ""
    on_trial: bool = False
    by_files: bool = False


@value
class UserError:
    """An error of the user's code, ``what``, that a query has met ``times`` times in a row in batch ``batch_id``."""

    query_id: str
    what: str
    batch_id: int
    times: int = 1


@value
class LocalRestart:
    """The query of sink ``query`` failed at ``since_ms``, the ``number``-th time in its attempt, and restarts alone.

    It is started again at ``restart_ms``; ``ordered``: it was then. ``over``: it has committed a batch since.
    ``unheard``: the owner of the job is a new one, which has not heard the driver yet. Its time begins when it has.
    ``longest_batch_ms``: how long its batches took, which it has to be given.
    """

    query: str
    number: int
    since_ms: int
    restart_ms: int
    error: str
    ordered: bool = False
    over: bool = False
    unheard: bool = False
    longest_batch_ms: int = 0


@value
class RestartState:
    """What a restart strategy remembers: attempts counted, when the merge window ends, recent failure times."""

    attempts: int = 0
    next_restart_ms: int | None = None
    failure_times_ms: tuple[int, ...] = ()


@value
class Recovery:
    """What a job has failed with, and how it has come back.

    ``strategy``: what the restart strategy remembers, and ``creation`` that for attempts that could not be started.
    ``failures``: the exception history. ``user_errors``: what the user's code keeps raising, per query; ``local``:
    queries restarted alone in this attempt. ``num_restarts``: how often Restarting was entered, also for a rescale.
    """

    strategy: RestartState = field(default_factory=RestartState)
    creation: RestartState = field(default_factory=RestartState)
    failures: tuple[tuple[Failure, ...], ...] = ()
    user_errors: tuple[UserError, ...] = ()
    local: tuple[LocalRestart, ...] = ()
    num_restarts: int = 0
