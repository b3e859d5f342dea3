"""The refusals of the control plane, by type: the API gives each its status (`app.api.errors`). No HTTP."""

from __future__ import annotations

from app.model.secret_texts import without_secrets


class ControlPlaneError(Exception):
    """A refusal with sentences for the client. Nothing was changed."""

    def __init__(self, *errors: str) -> None:
        super().__init__(" ".join(errors))
        self.errors = list(errors)


class UnknownJob(ControlPlaneError):
    """404"""


class UnknownRescale(ControlPlaneError):
    """404"""


class UnknownOperation(ControlPlaneError):
    """404: no stop operation with that trigger id"""


class UnknownAttempt(ControlPlaneError):
    """404: no such attempt, or none that is kept"""


class LogGone(ControlPlaneError):
    """410: the log of an attempt is not there any more"""


class BeyondLog(ControlPlaneError):
    """416: a log does not go so far"""


class InvalidRequest(ControlPlaneError):
    """400: what it says was found may have had a password"""

    def __init__(self, *errors: str) -> None:
        super().__init__(*map(without_secrets, errors))


class StateConflict(ControlPlaneError):
    """409: the state of the job forbids it"""


class NotYet(StateConflict):
    """409: the job has not come so far. It may have in a moment"""


class StaleVersion(ControlPlaneError):
    """412: If-Match names a version that is not the current one"""


class Unavailable(ControlPlaneError):
    """503: try again later"""


class NotServed(Unavailable):
    """503: the job exists, and this control plane does not serve it now"""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"Job {job_id} is not served by this control plane now. Try again in a moment.")


class InDoubt(Unavailable):
    """503: nobody knows whether it was carried out, and done twice it would count twice. Not to be tried again"""


class Fenced(ControlPlaneError):
    """410 to a driver: its attempt is over or its secret or epoch is wrong. ``home`` names the data directory of the
    server that says so: a driver of another one is not meant."""

    def __init__(self, error: str, home: str = "") -> None:
        super().__init__(error)
        self.home = home
