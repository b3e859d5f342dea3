"""What goes along with a query besides its plan, in whichever run of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

if TYPE_CHECKING:
    from app.driver.started_query import StartedQuery


class Upkeep:
    """What a query needs while it runs. That of a script needs nothing: it has asked Spark for all of it."""

    def build(self, parallelism: Mapping[str, int]) -> DataFrame | None:
        """The frame of a new run at these numbers, by vertex id, with its valves. None: the one that was asked for.

        Raises:
            DriverError: a vertex cannot be built.
        """
        return None

    def prepare(self, lock_file: str) -> None:
        """A run is about to be started, in the driver with this lock file.

        Raises:
            DriverError: its sink cannot be written.
        """

    def begins(self, run: StartedQuery, batch_id: int) -> None:
        """In the thread of the query: nothing of the batch has run.

        Raises:
            DriverError: the sink would not take it.
        """

    def written(self, batch_id: int) -> None:
        """In the thread of the query: Spark's sink has the batch, and its commit is next.

        Raises:
            DriverError: the sink has not all of it.
        """

    def between_batches(self) -> None:
        """In the thread of the query, before each batch."""

    def plan_changed(self, parallelism: Mapping[str, int]) -> None:
        """Batches are planned at these numbers from now on; the next one may still be at those before."""

    def settled(self, parallelism: Mapping[str, int]) -> None:
        """A batch was planned at these numbers, which are the newest."""
