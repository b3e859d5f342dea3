"""Which regions run again after one has failed (Flink's region failover), and which may start next."""

from __future__ import annotations

from collections.abc import Callable, Collection

from app.scheduler.batch.regions import Region, Regions


def regions_to_restart(
    regions: Regions,
    failed: Region,
    is_available: Callable[[str, Region], bool],
    has_started: Callable[[Region], bool] = lambda _region: True,
) -> tuple[Region, ...]:
    """The regions that must run again because ``failed`` failed, in the order in which they run.

    ``is_available(vertex_id, reader)`` tells whether what ``reader`` reads of a vertex is there still; a result that
    was named as the cause of the failure is not. Beside the failed region these are the producers of every lost result
    that one of them reads, and all who read what is made anew: another run may give other rows, in another order. A
    reader that has not started has read nothing, so it is left alone with all that it waits for.
    """
    found: dict[int, Region] = {}
    to_visit = [failed]
    while to_visit:
        region = to_visit.pop()
        if region.number in found:
            continue
        found[region.number] = region
        to_visit += [
            regions.by_vertex[vertex] for vertex in region.inputs if not is_available(vertex, region)
        ]
        to_visit += [reader for reader in regions.consumers(region) if has_started(reader)]
    return tuple(found[number] for number in sorted(found))


def startable(
    regions: Regions, started: Collection[int], is_available: Callable[[str, Region], bool]
) -> tuple[Region, ...]:
    """The regions that are not in ``started`` (by number) and all of whose inputs are there, in topological order.

    ``is_available`` as in `regions_to_restart`.
    """
    return tuple(
        region
        for region in regions.all
        if region.number not in started and all(is_available(vertex, region) for vertex in region.inputs)
    )
