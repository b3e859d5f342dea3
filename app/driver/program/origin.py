"""The checkpoints from which a new job continues: those of another job, or of a run without Slotwise.

When the program starts a query for the first time they are checked, and the query gets a copy; the originals are never
written.

Whether a query can continue from the state of a checkpoint, Spark decides without executing anything. When a query
starts, Spark notes the schemas of the state of each operator, and at each later start it compares them while it plans
the first batch. Here it plans that batch on a copy of its notes.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

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
from app.driver.scala import java_array
from app.driver.valves.spark import analysed, java_output_mode, streaming_class
from app.model.planned import PlannedVertex

SINK_NOTE = "slotwise-sink"
"""In the checkpoint of a query: the name of its sink. The directory itself is named by an id."""
_OWN = "slotwise-"

log = logging.getLogger(__name__)

_NOTES: Final = ("_metadata", "_stateSchema", "0/_metadata", "0/*/_metadata")
_CONDITION: Final = re.compile(r"\[([A-Z_]+)")
_SCHEMA_CONDITIONS: Final = ("STATE_STORE_KEY_SCHEMA", "STATE_STORE_VALUE_SCHEMA")
_OPERATOR_CONDITION: Final = "STREAMING_STATEFUL_OPERATOR_NOT_MATCH"


class Origin:
    """The field `from` of a program: ``directory`` is a checkpoint, or has one for each query."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._taken: dict[Path, str] = {}

    def checkpoint_of(self, sink: str, others: Sequence[str] = (), key: str = "") -> Path:
        """The checkpoint that the query of ``sink`` goes on from: by the name of its sink, or else the only one, which
        is for the first query of the program. ``others``: the sinks of those that it has had before, or has besides.
        ``key``: the directory that the job itself has for the query, as one that has left no name for it.

        Raises:
            DriverError: there is none.
        """
        found = self._found()
        place = found.get(sink) or (found.get(key) if key else None)
        if place is None and len(found) == 1 and (not others or self._directory in found.values()):
            (place,) = found.values()
            for other in others[:1]:
                self._taken.setdefault(place, other)
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
        self,
        place: Path,
        vertices: Sequence[PlannedVertex],
        sources: int,
        own: Path | None,
        sink_folder: Path | None,
    ) -> None:
        """See whether the query with ``vertices`` can go on from ``place``. ``sources``: how many Spark reads. ``own``:
        the checkpoint that the program has chosen for it, and ``sink_folder`` where it writes files to, if it does.

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
            had = source_count(place)
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


class StateMismatch(DriverError):
    """The state of a checkpoint is not that of the query."""


def check_state(
    frame: DataFrame, output_mode: str, vertices: Sequence[PlannedVertex], checkpoint: Path, scratch: Path
) -> None:
    """See whether the query that writes ``frame``, which has ``vertices``, can go on from the state in ``checkpoint``.
    What Spark cannot tell without running the query passes. ``scratch``: a directory that is not there yet.

    Raises:
        StateMismatch: it cannot.
    """
    now = standing(checkpoint)
    # Spark would run functions of the program to find out what such a state is.
    has_functions = any(each.operator.startswith("TransformWithState") for each in vertices)
    if now.committed < 0 or not has_state(checkpoint) or has_functions:
        return
    old, new = scratch / "old" / "state", scratch / "new" / "state"
    try:
        _copy_notes(checkpoint / "state", old)
        about = (checkpoint / "offsets" / str(now.planned)).read_text(encoding="utf-8").split("\n", 2)[1]
        try:
            _plan(frame, output_mode, old, now.planned + 1, about)
            return
        except Exception as error:
            told = str(error)
            found = _CONDITION.search(told)
            condition = found[1] if found else ""
            if not condition.startswith((*_SCHEMA_CONDITIONS, _OPERATOR_CONDITION)):
                raise
        _plan(frame, output_mode, new, 0, about)
        if condition.startswith(_OPERATOR_CONDITION):
            why = (
                f"what keeps state is {_operators(new)} now, and was {_operators(old)}: that cannot be added, removed "
                "or put into another order"
            )
        else:
            why = "; ".join(_differences(old, new, vertices)) or " ".join(told.split("\n", 3)[:3])
    except Exception as error:
        # Spark says it when the query starts.
        log.warning("the state in %s could not be compared with the plan: %s", checkpoint, error)
        return
    raise StateMismatch(
        f"the query of {vertices[-1].name} does not go with the state in {checkpoint}: {why}."
    )


def _copy_notes(state: Path, target: Path) -> None:
    """The schemas of a store are noted with its first partition."""
    for operator in state.iterdir():
        for pattern in _NOTES:
            for notes in operator.glob(pattern):
                shutil.copytree(notes, target / notes.relative_to(state))


def _plan(frame: DataFrame, output_mode: str, state: Path, batch: int, about: str) -> None:
    """Let Spark plan ``batch`` of a query with its state in ``state``. ``about``: what Spark notes of each batch."""
    jvm: Any = frame.sparkSession._jvm
    offsets = _streaming(jvm, "OffsetSeqMetadata").apply(about)
    session: Any = frame._jdf.sparkSession().cloneSession()
    # A query goes on with the formats with which its checkpoint was begun.
    _streaming(jvm, "OffsetSeqMetadata").setSessionConf(offsets, session.sessionState().conf())
    random_id = jvm.java.util.UUID.randomUUID
    given = [
        session,
        analysed(frame),
        java_output_mode(jvm, output_mode),
        f"file://{state}",
        random_id(),
        random_id(),
        batch,
        jvm.scala.Option.empty(),
        offsets,
        _streaming(jvm, "WatermarkPropagator").noop(),
        True,
    ]
    kind = streaming_class(jvm, "IncrementalExecution")
    (maker,) = kind.getConstructors()
    gateway: Any = frame.sparkSession.sparkContext._gateway
    no_types = gateway.new_array(jvm.java.lang.Class, 0)
    for number in range(len(given) + 1, int(maker.getParameterCount()) + 1):
        usual = kind.getMethod(f"$lessinit$greater$default${number}", no_types)
        given.append(usual.invoke(None, java_array(jvm, [])))
    maker.newInstance(java_array(jvm, given)).executedPlan()


def _streaming(jvm: Any, name: str) -> Any:
    """A class of Spark's, for its static methods."""
    return reduce(getattr, str(streaming_class(jvm, name).getName()).split("."), jvm)


# ---- in words

# What a user wrote, by the names that Spark's operators have in a checkpoint.
_IN_WORDS: Final = {"stateStoreSave": "an aggregate", "symmetricHashJoin": "a join", "globalLimit": "a limit"}


def _operators(state: Path) -> str:
    """What the operators do whose notes lie in ``state``."""
    names = [_operator_name(each).replace("dedupe", "dropDuplicates") for each in _numbered(state)]
    return ", ".join(_IN_WORDS.get(each, each) for each in names) or "nothing"


def _numbered(state: Path) -> list[Path]:
    if not state.is_dir():
        return []
    return sorted((each for each in state.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))


def _operator_name(operator: Path) -> str:
    try:
        about = (operator / "_metadata" / "metadata").read_text(encoding="utf-8").split("\n", 1)[1]
        return str(json.loads(about)["operatorInfo"]["operatorName"])
    except (OSError, ValueError, LookupError, TypeError):
        return f"operator {operator.name}"


def _differences(old: Path, new: Path, vertices: Sequence[PlannedVertex]) -> list[str]:
    """What is another type now, for each operator, field by field. Spark does not compare names."""
    told: list[str] = []
    operators, stateful = _numbered(new), _in_order_of_spark(vertices)
    for operator in operators:
        named = stateful[int(operator.name)] if len(stateful) == len(operators) else _operator_name(operator)
        for file in sorted(operator.rglob("schema")):
            was = old / file.relative_to(new)
            if not was.exists():
                continue
            for what, before, now in zip(
                ("key", "value"), read_schemas(was), read_schemas(file), strict=True
            ):
                told += (
                    f"the {what} of {named!r} {_in_words(at, left, right)}"
                    for at, (left, right) in enumerate(zip_longest(before.fields, now.fields), 1)
                    if left is None or right is None or left.dataType != right.dataType
                )
    return list(dict.fromkeys(told))


def _in_words(number: int, was: Any, now: Any) -> str:
    """Spark has names of its own for what is no column, and compares by place."""
    if was is None:
        return f"has a field {number} now, {now.name} ({now.dataType.simpleString()}), and had none"
    if now is None:
        return f"had a field {number}, {was.name} ({was.dataType.simpleString()}), and has none now"
    kind, before = now.dataType.simpleString(), was.dataType.simpleString()
    return f"has field {number}, {now.name}, as {kind} now, and had it as {before}"


def read_schemas(file: Path) -> tuple[StructType, StructType]:
    """The types of the key and of the value of a store, as Spark has noted them.

    Raises:
        ValueError: in a form that is not known here.
    """
    content, at = file.read_bytes(), 0

    def number(size: int) -> int:
        nonlocal at
        at += size
        return int.from_bytes(content[at - size : at], "big")

    def text() -> str:
        nonlocal at
        size = number(2)
        at += size
        return content[at - size : at].decode()

    version = text()
    if version not in ("v1", "v2"):
        raise ValueError(f"{file} has the form {version}")
    # A text of Java has 64 KiB at most: the later form has it in parts.
    key, value = ("".join(text() for _ in range(1 if version == "v1" else number(4))) for _ in range(2))
    return StructType.fromJson(json.loads(key)), StructType.fromJson(json.loads(value))


def _in_order_of_spark(vertices: Sequence[PlannedVertex]) -> list[str]:
    """The names of the vertices with state as Spark counts them: from the sink on, inputs from the left."""
    by_name, found, seen = {each.name: each for each in vertices}, [], set()
    waiting = [vertices[-1].name]
    while waiting:
        vertex = by_name[waiting.pop()]
        if vertex.name in seen:
            continue
        seen.add(vertex.name)
        if vertex.stateful:
            found.append(vertex.name)
        waiting += reversed(vertex.inputs)
    return found
