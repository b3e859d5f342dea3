"""The checkpoints from which a new job continues: those of another job, or of a run without Slotwise.

They are checked when the program is planned. When the job starts, each query gets a copy; the originals are
never written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from app.driver.checkpoints import (
    copy_beside,
    finish_replacing,
    forget_old,
    has_state,
    is_one_of_several,
    make_ready,
    newest_in_sink,
    source_count,
    standing,
)
from app.driver.failures import DriverError
from app.driver.locks import refuse_if_written
from app.model.jobgraph import Role
from app.model.protocol import PlannedVertex

SINK_NOTE = "slotwise-sink"
"""In the checkpoint of a query: the name of its sink. The directory itself is named by an id."""
_OWN = "slotwise-"


class Origin:
    """The field `from` of a program: ``directory`` is a checkpoint, or has one for each query."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._taken: dict[Path, str] = {}

    def checkpoint_of(self, sink: str, *, is_only_query: bool = True) -> Path:
        """The checkpoint that the query of ``sink`` goes on from: by the name of its sink, or else the only one, which
        cannot be meant for one of several queries.

        Raises:
            DriverError: there is none.
        """
        found = self._found()
        place = found.get(sink) or (next(iter(found.values())) if is_only_query and len(found) == 1 else None)
        if place is None:
            raise DriverError(
                f"from: {self._directory} has no checkpoint of {sink}, but those of {', '.join(sorted(found))}."
            )
        if self._taken.setdefault(place, sink) != sink:
            raise DriverError(
                f"from: {self._directory} has one checkpoint for two queries of the program, {self._taken[place]} and "
                f"{sink}: there has to be one for each, in a directory with the name of its sink."
            )
        return place

    def _found(self) -> dict[str, Path]:
        with _telling(f"{self._directory} cannot be read on the host of the driver"):
            if (self._directory / "offsets").is_dir():
                return {"": self._directory}
            inside = [each for each in self._directory.iterdir() if (each / "offsets").is_dir()]
            named = [(_sink_of(each), each) for each in sorted(inside) if not is_one_of_several(each.name)]
        found = dict(named)
        for sink, place in named:
            if found[sink] != place:
                raise DriverError(
                    f"from: {self._directory} has two checkpoints of {sink}, {place.name} and {found[sink].name}: "
                    "leave one of them there."
                )
        if not found:
            raise DriverError(
                f"from: {self._directory} is no checkpoint: neither it nor a directory in it has offsets."
            )
        return found

    def check(
        self, place: Path, vertices: Sequence[PlannedVertex], own: Path | None, sink_folder: Path | None
    ) -> None:
        """See whether the query with ``vertices`` can go on from ``place``. ``own``: the checkpoint that the program
        has chosen for it, and ``sink_folder`` where it writes files to, if it does.

        Raises:
            DriverError: it cannot.
        """
        with _telling(f"the checkpoint {place} cannot be read"):
            sink = vertices[-1].name
            if own is not None and (left := _foreign(own)):
                raise DriverError(
                    f"from: the query of {sink} has the checkpointLocation {own}, which is not empty: it has {left}. "
                    "Leave from out to go on from there, or give the query another checkpointLocation."
                )
            refuse_if_written(place)
            sources, had = sum(each.role is Role.SOURCE for each in vertices), source_count(place)
            if had is not None and had != sources:
                raise DriverError(
                    f"from: the query of {sink} has {sources} sources, and the checkpoint {place} is of {had}: they "
                    "have to be the same ones."
                )
            keeps = any(each.stateful for each in vertices)
            if had is not None and keeps is not has_state(place):
                raise DriverError(
                    f"from: the query of {sink} keeps {'' if keeps else 'no '}state, and the checkpoint {place} has "
                    f"{'none' if keeps else 'some'}: operators with state cannot be added or removed."
                )
            if sink_folder is not None:
                _check_sink(sink, place, sink_folder)


def adopt(find: Callable[[], Path], checkpoint: Path) -> None:
    """Let ``checkpoint`` be a copy of what ``find`` gives, unless an attempt before has done that: the original may be
    gone by then. The copy is whole or not there.

    Raises:
        DriverError: it could not be done.
    """
    with _telling(f"the checkpoint could not be copied to {checkpoint}", recoverable=True):
        finish_replacing(checkpoint)
        if left := _foreign(checkpoint):
            if (checkpoint / "offsets").is_dir():
                return
            raise DriverError(f"from: the checkpointLocation {checkpoint} is not empty: it has {left}.")
        place = find()
        refuse_if_written(place)
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        copy_beside(checkpoint, place)
        make_ready(checkpoint)
        finish_replacing(checkpoint)
        forget_old(checkpoint)


@contextmanager
def _telling(what: str, *, recoverable: bool = False) -> Iterator[None]:
    """Files that cannot be read or written fail with a sentence."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = (isinstance(error, OSError) and error.strerror) or error
        raise DriverError(f"from: {what}: {why}.", recoverable=recoverable) from error


def _sink_of(checkpoint: Path) -> str:
    try:
        return (checkpoint / SINK_NOTE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return checkpoint.name


def _foreign(checkpoint: Path) -> str | None:
    """What is in a directory that drivers have not put there as notes; None if there is nothing."""
    try:
        return next((each.name for each in checkpoint.iterdir() if not each.name.startswith(_OWN)), None)
    except FileNotFoundError:
        return None


def _check_sink(sink: str, place: Path, folder: Path) -> None:
    """Spark's file sink takes each batch once, by the log in its folder, and looks for all batches before there."""
    committed, logged = standing(place).committed, newest_in_sink(folder)
    if committed >= 0 and logged < committed:
        raise DriverError(
            f"from: the query of {sink} writes files to {folder}, where Spark's log ends with batch {logged}, and the "
            f"checkpoint {place} with batch {committed}: Spark would fail there before long. Write to the folder of "
            "before, which has the batches up to there."
        )
    if logged > committed + 1:
        raise DriverError(
            f"from: the query of {sink} writes files to {folder}, where Spark's log has batches up to {logged} "
            f"already, and the checkpoint {place} only up to {committed}: Spark would leave out what is new in them. "
            "Take the newest checkpoint, or another folder with a new checkpoint."
        )
