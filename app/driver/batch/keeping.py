"""What is kept of a job's results, and what goes. A file system that is away leaves more behind, and fails nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from app.driver.batch.results import sweep
from app.driver.failures import DriverError
from app.model.resultsurl import below, is_local

if TYPE_CHECKING:
    from app.driver.batch.storage import Storages

log = logging.getLogger(__name__)


class Keeper:
    """Of the results of one job, which all lie below ``root``."""

    def __init__(self, storages: Storages, root: str) -> None:
        self._storage = storages.of(root)
        self._root = root
        self._swept: set[str] | None = None

    def keep(self, kept: set[str]) -> None:
        """Remove all other places. What was kept last time is not looked at again: each look may ask another host."""
        if kept == self._swept:
            return
        try:
            sweep(self._storage, self._root, kept)
            self._swept = kept
        except (OSError, DriverError) as error:
            log.warning("results that nobody needs could not be removed: %s", error)

    def remove_all(self) -> None:
        """Nothing of the job counts any more."""
        try:
            self._storage.remove(self._root)
        except (OSError, DriverError) as error:
            log.warning("the results of the job could not be removed: %s", error)

    @property
    def is_driver_alone(self) -> bool:
        """Whether nobody else can remove them: the control plane has no client of such file systems."""
        return not is_local(self._root)

    def remove_ended(self, roots: Iterable[str]) -> None:
        """In the background: remove what the drivers of other jobs, which have ended, left at ``roots``."""
        places = set(roots)
        if places:
            threading.Thread(target=self._remove_ended, args=(places,), name="leftovers", daemon=True).start()

    def _remove_ended(self, places: set[str]) -> None:
        directories = {place.rpartition("/")[0] for place in places}
        try:
            for directory in directories:
                # With a slash at its end, so that it is a place also where it is the root of a file system.
                for name in self._storage.names(directory + "/"):
                    if (place := below(directory, name)) in places:
                        self._storage.remove(place)
        except (OSError, DriverError) as error:
            log.warning("the results of jobs that have ended could not be removed: %s", error)
