"""What a valve is for. It is written at the valve itself, so that whoever has the running plan has all of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from app.driver.valves.shape import Width, tasks


@dataclass(frozen=True, slots=True)
class Label:
    """``vertex_id``: empty at a valve that follows others. ``before``: the tasks of the stage that comes to the
    valve; None at a sink that has a stage of its own by Spark's doing. ``is_capped``: the program says how many tasks a
    sink has at most."""

    vertex_id: str = ""
    is_sink: bool = False
    before: Width | None = None
    is_capped: bool = False

    @property
    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Label:
        return cls(**json.loads(text))

    def setting(self, parallelism: Mapping[str, int]) -> tuple[int, bool]:
        """The number of the valve, and whether it shuffles. ``parallelism`` is by vertex id."""
        if not self.vertex_id:
            assert self.before is not None
            return tasks(self.before, parallelism), False
        number = parallelism[self.vertex_id]
        if not self.is_sink or self.before is None:
            return number, False
        before = tasks(self.before, parallelism)
        if number > before:
            return number, not self.is_capped
        return number, number < before and not self._joins(number, parallelism)

    def _joins(self, number: int, parallelism: Mapping[str, int]) -> bool:
        """Whether it is a union of stages of ``number`` tasks each: these go together without a shuffle."""
        if not isinstance(self.before, dict) or "sum" not in self.before:
            return False
        return all(tasks(each, parallelism) == number for each in self.before["sum"])
