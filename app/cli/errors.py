"""Errors that end a command: `app.cli.program.main` prints the sentences and sets the exit status."""

from __future__ import annotations

EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_TAKEN_BACK = 3
EXIT_TIMEOUT = 4


class CliError(Exception):
    """The command cannot go on; ``errors`` are sentences for the person who typed it."""

    exit_code = EXIT_REFUSED

    def __init__(self, *errors: str) -> None:
        super().__init__(" ".join(errors))
        self.errors = list(errors)


class UsageError(CliError):
    """The command was typed in a way that makes no sense; the server was not asked."""

    exit_code = EXIT_USAGE


class Refused(CliError):
    """The server answered with an error. ``status`` is the HTTP status, the sentences are the server's."""

    def __init__(self, status: int, *errors: str) -> None:
        super().__init__(*errors)
        self.status = status


class Stranger(Refused):
    """What answered is not a Slotwise server, such as a proxy before one that is away."""


class TakenBack(CliError):
    """A rescale that was waited for was taken back: the job runs on as it did before."""

    exit_code = EXIT_TAKEN_BACK


class TimeIsOver(CliError):
    """What was waited for has not come in the time that was given for it. The job, or its new version, goes on."""

    exit_code = EXIT_TIMEOUT


class NoServer(CliError):
    """Nothing answers at the server's address."""


def is_away(error: CliError) -> bool:
    """Whether there is, for now, no server that could tell. A proxy before one that is away answers itself."""
    if isinstance(error, Stranger):
        return error.status in (502, 503, 504)
    return isinstance(error, NoServer) or (isinstance(error, Refused) and error.status == 503)
