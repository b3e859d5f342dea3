"""The program `slotwise`: its commands, and what becomes of errors.

Exit status: 0 done, 1 refused or failed, 2 typed wrongly, 130 interrupted. An error is one or more sentences on
stderr, never a traceback; SLOTWISE_DEBUG=1 adds that of an error which should not happen.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer

from app.cli import (
    autoscale,
    cluster,
    doctor,
    events,
    jobs,
    logs,
    members,
    policy,
    require,
    rescales,
    serve,
    share,
    submit,
    watch,
)
from app.cli.demo.command import demo
from app.cli.errors import EXIT_REFUSED, CliError
from app.cli.options import expanded
from app.cli.output import warn

EXIT_INTERRUPTED = 130


def _print_version(asked: bool) -> None:
    if asked:
        doctor.version()
        raise typer.Exit


program = typer.Typer(
    name="slotwise",
    help="Elastic PySpark jobs: declare how parallel each vertex may be, and change it while the job runs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for _name, _function, _summary in (
    ("serve", serve.serve, "Start a server."),
    ("submit", submit.submit, "Submit a job graph or a program."),
    ("jobs", jobs.jobs, "List the jobs."),
    ("show", jobs.show, "Show one job and its vertices."),
    ("require", require.require, "Change bounds of parallelism."),
    ("autoscale", autoscale.autoscale, "Declare upper bounds by the load of a job."),
    ("policy", policy.policy, "Show or set the floor and ceiling of the vertices of a job."),
    ("share", share.share, "Show or change the weight, priority and cap of a job."),
    ("rescales", rescales.rescales, "Show the rescale history of a job."),
    ("cancel-rescale", rescales.cancel_rescale, "Cancel a rescale that waits."),
    ("decisions", rescales.decisions, "Show the parallelism decisions of a batch job."),
    ("explain", jobs.explain, "Print why a job has its current parallelism."),
    ("exceptions", jobs.exceptions, "List the failures of a job."),
    ("attempts", logs.attempts, "List the attempts of a job."),
    ("logs", logs.logs, "Print the log of a job's driver."),
    ("watch", watch.watch, "Watch a job until it ends."),
    ("events", events.events, "Show the events of jobs."),
    ("cancel", jobs.cancel, "Cancel a job at once."),
    ("stop", jobs.stop, "Stop a job at a batch boundary."),
    ("forget", jobs.forget, "Delete a job that has ended."),
    ("members", members.members, "List the servers that share the jobs."),
    ("demo", demo, "Rescale and kill a real job; check its output."),
    ("doctor", doctor.doctor, "Check that this machine can run a server."),
    ("version", doctor.version, "Print the versions."),
):
    program.command(_name, short_help=_summary)(expanded(_function))
program.add_typer(
    cluster.cluster, name="cluster", short_help="A Spark cluster on this host, for development."
)


@program.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the versions, and exit."
        ),
    ] = False,
) -> None:
    """Elastic PySpark jobs: declare how parallel each vertex may be, and change it while the job runs."""


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # What the terminal's encoding lacks is written as an escape, instead of ending the command.
            stream.reconfigure(errors="backslashreplace")
    try:
        program(args=arguments, prog_name="slotwise")
    except CliError as error:
        for sentence in error.errors:
            warn(sentence)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of a pipe (head, less) has gone: nothing more to say, and nothing to complain about.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_REFUSED)
    except Exception as error:
        if os.environ.get("SLOTWISE_DEBUG"):
            traceback.print_exc()
        detail = " ".join(f"{type(error).__name__}: {error}".split())
        warn(f"slotwise met an error of its own, {detail}. With SLOTWISE_DEBUG=1 it says where.")
        sys.exit(EXIT_REFUSED)
