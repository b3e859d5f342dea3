"""Whether a query can continue from the state of a checkpoint, as Spark decides without executing anything.

When a query starts, Spark notes the schemas of the state of each operator, and at each later start it compares them
while it plans the first batch. Here it plans that batch on a copy of its notes.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Sequence
from functools import reduce
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from app.driver.checkpoints import has_state, standing
from app.driver.failures import DriverError
from app.driver.plan_check import java_output_mode
from app.driver.scala import java_array
from app.driver.valves.spark import analysed, streaming_class
from app.model.protocol import PlannedVertex

log = logging.getLogger(__name__)

_NOTES: Final = ("_metadata", "_stateSchema", "0/_metadata", "0/*/_metadata")
_CONDITION: Final = re.compile(r"\[([A-Z_]+)")
_SCHEMA_CONDITIONS: Final = ("STATE_STORE_KEY_SCHEMA", "STATE_STORE_VALUE_SCHEMA")
_OPERATOR_CONDITION: Final = "STREAMING_STATEFUL_OPERATOR_NOT_MATCH"


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
                f"its operators with state are {_operators(new)} now, and were {_operators(old)}: they cannot be "
                "added, removed or put into another order"
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


def _operators(state: Path) -> str:
    """The names of the operators whose notes lie in ``state``, as Spark has them."""
    return ", ".join(_operator_name(each) for each in _numbered(state)) or "none"


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
