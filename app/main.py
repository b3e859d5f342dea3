"""The server process: opens what it needs in an order that leaves nothing half done, serves, and lets go."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import structlog
import uvloop

from app.api.app import create_app
from app.api.auth import TokenFile, TokenFileError
from app.api.event_streams import STREAMS_MAX
from app.api.forwarding import Forwarding
from app.api.info import ServerInfo
from app.api.plugin import Plugin
from app.api.server import PortRefused, Server, bind, listen, raise_descriptor_limit, url_of
from app.cluster.appcds import ArchiveBuilder, default_cache_dir
from app.cluster.driveruser import DriverUser, DriverUserError
from app.cluster.embedded import EmbeddedHost
from app.cluster.java import Java, JavaNotUsable, usable_java
from app.cluster.kubernetes.api import ApiError
from app.cluster.kubernetes.pod_spec import TemplateError
from app.cluster.ports import ExecutorCluster
from app.cluster.runtimes import Runtimes
from app.logs import configure_logs
from app.model.sparkui import ADDRESS_VARIABLE, LOOPBACK
from app.plugins.assembly import plugins_of
from app.settings import Settings
from app.store.datadir import DataDirectory
from app.store.errors import StoreError
from app.store.jobsdir import claim_jobs_dir
from app.store.members import Member
from app.store.seats import Seat
from app.store.store import Store
from app.worker.clock import Clock, SystemClock
from app.worker.control_plane import ControlPlane
from app.worker.housekeeping.directories import DirectoryRefused, driver_user, prepare
from app.worker.housekeeping.housekeeping import Housekeeper
from app.worker.housekeeping.strays import Strays, open_store
from app.worker.job.places import JobPlaces, place_of, write_server_address
from app.worker.job.silence import Silence
from app.worker.ownership.control_planes import ControlPlanes
from app.worker.ownership.membership import Membership, PlaceTaken
from app.worker.slots.executor_clusters import beside_jobs, cluster_of, driver_java_options, shown_of

log = structlog.get_logger()

_QUIET_S = 5.0
"""For so long a server does nothing but serve: one that is killed again and again would leave its host no time."""

_OBJECTS_PER_COLLECTION = 10_000
"""New objects after which the garbage collector looks at them: Python's own 700 are one or two requests."""


class StartRefused(Exception):
    """The server cannot start; the message is a sentence for people."""


def serve(settings: Settings, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Run a server until SIGTERM or SIGINT. Jobs keep running when it ends. ``on_ready`` gets its URL.

    Raises:
        StartRefused: something that it needs is missing, in use, or wrong; nothing was started.
    """
    configure_logs(settings.log_format, settings.log_level)
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_serve(settings, on_ready))
        except PortRefused as error:
            raise StartRefused(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Running:
    """What the API is put together from."""

    control_plane: ControlPlane
    control_planes: ControlPlanes
    forwarding: Forwarding | None
    info: ServerInfo


async def _serve(settings: Settings, on_ready: Callable[[str], None] | None) -> None:
    try:
        java = usable_java()
        tokens = TokenFile(settings.token_file) if settings.token_file else None
        data_dir = prepare(settings)
        plugins = _plugins(settings)
    except (JavaNotUsable, TokenFileError, DirectoryRefused) as error:
        raise StartRefused(str(error)) from error
    connections_max = raise_descriptor_limit()
    with contextlib.ExitStack() as stack:
        for plugin in plugins:
            stack.callback(plugin.close)
        listener = stack.enter_context(contextlib.closing(bind(settings.host, settings.port)))
        url = url_of(listener)
        membership = _claim(stack, settings, data_dir, url)
        apart = settings.run_drivers_as is not None
        cache_dir = settings.cache_dir or (data_dir / "cache" if apart else default_cache_dir())
        try:
            user = driver_user(settings, membership.run_dir, cache_dir, java.command)
        except DriverUserError as error:
            raise StartRefused(str(error)) from error
        archive = ArchiveBuilder(cache_dir, java)
        new_host = partial(_host, settings, membership, java, archive, user)
        async with _running(settings, membership, archive, url, new_host, plugins) as running:
            control_plane = running.control_plane
            app = create_app(
                control_plane,
                info=running.info,
                tokens=tokens,
                control_planes=running.control_planes,
                forwarding=running.forwarding,
                # Those who follow events leave connections to everybody else.
                streams_max=min(STREAMS_MAX, connections_max // 2),
                plugins=plugins,
            )
            server = Server(app, connections_max=connections_max, let_go=control_plane.close)
            _spare_collector()
            listen(listener)
            offered = _offered(settings, control_plane)
            log.info("serving", url=url, data_dir=str(data_dir), **offered, java=java.version)
            if on_ready is not None:
                on_ready(url)
            await server.serve(sockets=[listener])
            log.info("stopped", note="jobs keep running; a restart adopts them")


def _spare_collector() -> None:
    """Take what the start has made out of the garbage collector's sight: nearly all of it lives as long as the process.

    A full collection looks at all of it (libraries, schemas, jobs) and holds everybody up for 70 ms and more; under
    load there is one every second. The price: of a job that was there at the start and has ended since, some 20 KiB
    stay until the next start.
    """
    gc.collect()
    gc.freeze()


def _claim(stack: contextlib.ExitStack, settings: Settings, data_dir: Path, url: str) -> Membership:
    """Claim the data directory: alone, or a seat in it among the servers of the same PostgreSQL database."""
    # The slots of a namespace are offered by one server only.
    shared = not settings.url.startswith("sqlite") and settings.cluster_kind != "kubernetes"
    try:
        home = stack.enter_context(DataDirectory.claim(data_dir, shared=shared)).home()
        claim_jobs_dir(data_dir, home, settings.place_of_jobs)
        seat = stack.enter_context(Seat.take(data_dir)) if shared else None
    except StoreError as error:
        raise StartRefused(str(error)) from error
    cluster = settings.cluster_master or ""
    # With a cluster it is the workers that have slots.
    slots = 0 if cluster else settings.slots
    return Membership(
        data_dir, home, seat, url=url, version=version("slotwise"), slots=slots, cluster=cluster
    )


@contextlib.asynccontextmanager
async def _running(
    settings: Settings,
    membership: Membership,
    archive: ArchiveBuilder,
    url: str,
    new_host: Callable[[ExecutorCluster | None], EmbeddedHost],
    plugins: Sequence[Plugin],
) -> AsyncIterator[_Running]:
    """The control plane with its store and its host, started; let go of in the opposite order."""
    lease_ttl_ms = int(settings.lease_seconds * 1000)
    store = await _store(settings, membership, lease_ttl_ms)
    clock = SystemClock()
    spark = _spark_cluster(settings, clock, membership.home)
    host = new_host(spark)
    places = _places(settings, membership, url, spark)
    offer = await spark.look(lambda _job_id: True) if spark else None
    control_plane = ControlPlane(
        store,
        host=host,
        places=places,
        clock=clock,
        new_id=lambda: secrets.token_hex(16),
        offer=offer,
        shown=shown_of(spark),
        observers=plugins,
        slot_holding_ms=settings.slot_holding_ms,
    )
    housekeeper = _housekeeper(settings, store, control_plane, places, clock)
    running: list[asyncio.Task[None]] = []
    forwarding: Forwarding | None = None
    try:
        member = await _join(membership, store)
        write_server_address(places.address_file, url)
        # On SQLite there is nobody who could take a lease that has expired.
        renew_every_s = lease_ttl_ms / 3000 if store.database.dialect != "sqlite" else None
        control_planes = await control_plane.start(
            renew_every_s=renew_every_s,
            member=member,
            is_dead=membership.is_dead,
            bells=membership.bells(),
        )
        forwarding = Forwarding(control_planes) if membership.is_shared else None
        running.append(asyncio.create_task(housekeeper.run()))
        running += [asyncio.create_task(each) for each in beside_jobs(spark, control_plane)]
        running.append(asyncio.create_task(_prepare_drivers(settings, host, archive)))
        yield _Running(control_plane, control_planes, forwarding, _info(settings, url, spark))
    finally:
        archive.stop()
        for task in running:
            task.cancel()
        if forwarding is not None:
            await forwarding.close()
        await control_plane.close()
        host.close()
        if spark is not None:
            await spark.close()
        with contextlib.suppress(StoreError):
            await store.expire_leases()
            await membership.leave(store)
        await store.close()


async def _prepare_drivers(settings: Settings, host: EmbeddedHost, archive: ArchiveBuilder) -> None:
    """What makes later drivers start faster."""
    await asyncio.sleep(_QUIET_S)
    host.keep_warm(settings.warm_drivers)
    if settings.appcds:
        await archive.ensure()


def _plugins(settings: Settings) -> Sequence[Plugin]:
    try:
        return plugins_of(traces=settings.traces)
    except ImportError as error:
        sentence = "traces: packages of OpenTelemetry are missing: pip install 'slotwise[otel]'."
        raise StartRefused(sentence) from error


async def _store(settings: Settings, membership: Membership, lease_ttl_ms: int) -> Store:
    try:
        return await open_store(settings.place_of_jobs, settings.url, membership, lease_ttl_ms)
    except StoreError as error:
        raise StartRefused(str(error)) from error


async def _join(membership: Membership, store: Store) -> Member | None:
    try:
        return await membership.join(store)
    except (PlaceTaken, StoreError) as error:
        raise StartRefused(str(error)) from error


def _offered(settings: Settings, control_plane: ControlPlane) -> dict[str, int | str]:
    """The slots that there are, and where."""
    if settings.cluster_master is None:
        return {"slots": settings.slots}
    slots = sum(manager.slots for manager in control_plane.task_managers())
    return {"slots": slots, "cluster": settings.cluster_master}


def _info(settings: Settings, url: str, spark: ExecutorCluster | None) -> ServerInfo:
    return ServerInfo(
        version=version("slotwise"),
        # With a cluster it is the workers that have slots.
        slots=settings.slots if spark is None else 0,
        url=url,
        settings=settings,
        warnings=lambda: (
            []
            if spark is None
            else [*([spark.unreachable] * bool(spark.unreachable)), *spark.periodic.troubles]
        ),
    )


def _places(settings: Settings, membership: Membership, url: str, spark: ExecutorCluster | None) -> JobPlaces:
    return JobPlaces(
        settings.place_of_jobs,
        membership.data_dir / "address",
        _width(settings, membership),
        settings.results_url,
        cluster=spark,
        url=url if membership.is_shared else None,
        task_manager=membership.task_manager,
        runs_on=place_of(settings),
        private=settings.private_paths,
        page_address=os.environ.get(ADDRESS_VARIABLE) or LOOPBACK,
        home=membership.home,
        shared_working_dir=membership.run_dir,
        silence=Silence(settings.driver_standstill_seconds),
    )


def _housekeeper(
    settings: Settings, store: Store, control_plane: ControlPlane, places: JobPlaces, clock: SystemClock
) -> Housekeeper:
    return Housekeeper(
        store,
        settings,
        places,
        clock,
        jobs=control_plane.jobs,
        forget=control_plane.forget,
        drop_strays=Strays(store, places.jobs_dir).drop,
    )


def _width(settings: Settings, membership: Membership) -> int:
    """How many tasks of a driver run at once. Where servers share slots, a job may come to those of servers that are
    not there yet, and all together have what the host has."""
    return max(settings.slots, os.cpu_count() or 1) if membership.is_shared else settings.slots


def _host(
    settings: Settings,
    membership: Membership,
    java: Java,
    archive: ArchiveBuilder,
    user: DriverUser | None,
    spark: ExecutorCluster | None,
) -> EmbeddedHost:
    return EmbeddedHost(
        membership.run_dir,
        java=java,
        slots=_width(settings, membership),
        memory_mb=settings.driver_memory_mb,
        java_options=driver_java_options(settings),
        archive=archive if settings.appcds else None,
        user=user,
        runtimes=Runtimes(
            archive.cache_dir,
            java,
            repository=settings.package_repository,
            user=user,
            cluster=spark,
        ),
    )


def _spark_cluster(settings: Settings, clock: Clock, home: str) -> ExecutorCluster | None:
    """The cluster of the settings; None if jobs run on this host."""
    try:
        return cluster_of(settings, clock.now_ms, home)
    except (ApiError, TemplateError) as error:
        raise StartRefused(str(error)) from error
