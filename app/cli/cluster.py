"""`slotwise cluster`: a Spark standalone cluster on this host, for development."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.errors import CliError
from app.cli.options import JsonOption, path_of
from app.cli.output import print_json, say

if TYPE_CHECKING:
    from app.cluster.standalone.daemons import DevCluster

cluster = typer.Typer(
    help="A Spark standalone cluster on this host, for development: a master and workers on loopback.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--directory",
        metavar="PATH",
        parser=path_of,
        help="Where it keeps its files; default ~/.local/state/slotwise/cluster.",
    ),
]
CoresOption = Annotated[int, typer.Option(min=1, max=1024, help="Cores, and so slots, of each worker.")]
MemoryOption = Annotated[
    int | None, typer.Option(min=450, help="Memory for executors; default: 512 MB for each core.")
]
_MEMORY_PER_CORE_MB = 512


@contextlib.contextmanager
def _cluster(directory: Path | None) -> Iterator[DevCluster]:
    """The cluster of a directory. What it refuses is a sentence, not a traceback."""
    from app.cluster.java import JavaNotUsable, usable_java
    from app.cluster.standalone.daemons import ClusterError, DevCluster
    from app.settings import default_data_dir

    try:
        chosen = directory.expanduser().absolute() if directory else default_data_dir() / "cluster"
        yield DevCluster(chosen, java=usable_java())
    except (ClusterError, JavaNotUsable) as error:
        raise CliError(str(error)) from None


@cluster.command()
def up(
    workers: Annotated[int, typer.Option(min=0, max=64, help="Workers to start.")] = 3,
    cores: CoresOption = 2,
    memory_mb: MemoryOption = None,
    directory: DirectoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start a master and workers. One that is up gets its master again if that was killed, and as many workers."""
    with _cluster(directory) as made:
        made.up()
        for _ in range(workers - len([one for one in made.workers if one.is_running])):
            worker = made.add(cores=cores, memory_mb=memory_mb or cores * _MEMORY_PER_CORE_MB)
            if not as_json:
                say(f"{worker.name} is up with {cores} cores.")
        if as_json:
            print_json(_shown(made))
        else:
            say(f"The master is {made.master_url}, its page {made.webui_url}. Run jobs there with:")
            say(f"slotwise serve --cluster-master {made.master_url} --cluster-webui {made.webui_url}")


@cluster.command()
def add(cores: CoresOption = 2, memory_mb: MemoryOption = None, directory: DirectoryOption = None) -> None:
    """Start one more worker."""
    with _cluster(directory) as made:
        worker = made.add(cores=cores, memory_mb=memory_mb or cores * _MEMORY_PER_CORE_MB)
    say(f"{worker.name} is up with {cores} cores.")


@cluster.command()
def kill(
    name: Annotated[str, typer.Argument(help="master, or a worker as `slotwise cluster show` names it.")],
    directory: DirectoryOption = None,
) -> None:
    """Kill the master, or a worker with its executors, with -9."""
    with _cluster(directory) as made:
        made.kill(name)
    again = " It is started again by: slotwise cluster up --workers 0" if name == "master" else ""
    say(f"{name} was killed.{again}")


@cluster.command()
def show(directory: DirectoryOption = None, as_json: JsonOption = False) -> None:
    """Show the master, the workers and the applications."""
    with _cluster(directory) as made:
        shown = _shown(made)
    if as_json:
        print_json(shown)
        return
    say(f"master {shown['master']}, page {shown['webui']}: {shown['status']}")
    for worker in shown["workers"]:
        say(f"{worker['name']}: {worker['cores']} cores, {'up' if worker['running'] else 'gone'}")
    for application in shown["applications"]:
        say(f"{application['name']}: {application['cores']} cores")


@cluster.command()
def down(directory: DirectoryOption = None) -> None:
    """End the master and all workers, with their executors."""
    with _cluster(directory) as made:
        ended = made.down()
    say(f"{ended} processes were ended." if ended else "Nothing was running.")


def _shown(made: DevCluster) -> dict[str, Any]:
    from app.cluster.standalone.daemons import ClusterError

    try:
        roster = made.roster()
        status, applications = roster.status, roster.applications
    except ClusterError:
        status, applications = "does not answer", ()
    return {
        "master": made.master_url,
        "webui": made.webui_url,
        "status": status,
        "workers": [
            {"name": one.name, "pid": one.pid, "cores": one.cores, "running": one.is_running}
            for one in made.workers
        ],
        "applications": [{"id": one.id, "name": one.name, "cores": one.cores} for one in applications],
    }
