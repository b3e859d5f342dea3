"""What the Python worker needs that Spark starts beside the driver for each transformWithState.

It sees the environment of its function, and none of the files that Spark sends to other workers. Where it cannot import
something of its own it ends without a word.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.driver.failures import DriverError, one_line
from app.driver.scala import plan_children

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MESSAGES = "pyspark.sql.streaming.proto.StateMessage_pb2"


def equip_state_workers(frame: DataFrame, artifacts: Sequence[str]) -> None:
    """Let the workers of ``frame``, a vertex' result, import from ``artifacts``.

    Raises:
        DriverError: a package is missing that they need.
    """
    waiting = [frame._jdf.queryExecution().analyzed()]
    while waiting:
        node = waiting.pop()
        waiting.extend(plan_children(node))
        if node.getClass().getSimpleName() == "TransformWithStateInPySpark":
            _check_packages()
            environment = node.functionExpr().func().envVars()
            known = environment.get("PYTHONPATH")
            environment.put("PYTHONPATH", os.pathsep.join([*artifacts, *([known] if known else [])]))


def _check_packages() -> None:
    try:
        importlib.import_module(_MESSAGES)
    except Exception as error:  # that of a protobuf too old is no ImportError
        why = one_line(f"{type(error).__name__}: {error}", 300)
        raise DriverError(
            f"transformWithState needs the Python package protobuf in a version that PySpark was made for ({why}). "
            "Install the one that `slotwise doctor` names, beside PySpark."
        ) from error
