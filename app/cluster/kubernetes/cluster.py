"""A Kubernetes namespace as a source of slots: its pods and quotas are read, and pods of earlier drivers are deleted.

While the API does not answer, running jobs keep their slots, because their executors continue without it, and
nothing is started.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import structlog

from app.cluster.kubernetes.api import ApiError, KubernetesApi
from app.cluster.kubernetes.namespace import (
    Experience,
    NotFromTheApi,
    Pod,
    Quota,
    Room,
    read_pods,
    read_quotas,
    reopened,
    settle,
)
from app.cluster.kubernetes.pod_spec import PodSettings
from app.cluster.kubernetes.probe import Probe
from app.cluster.periodic import Periodic
from app.cluster.ports import ExecutorLog, ExecutorLogElsewhere, Offer
from app.cluster.reachability import Reachability
from app.model.kubenames import ATTEMPT_LABEL, JOB_LABEL
from app.model.ownsettings import FIRST_EXECUTOR_S, FIRST_EXECUTOR_SETTING

log = structlog.get_logger()

_THROTTLED_S = 30.0
_CLEARED_DEADLINE_S = 30.0
_CLEARED_POLL_S = 0.5
_FORBIDDEN = (401, 403)
# How long a pod that has a node takes to be an executor.
_POD_START_S = 30.0


def pod_name_prefix(job_id: str, attempt: int) -> str:
    """What the names of an attempt's pods begin with; Spark appends ``-exec-1`` and so on."""
    return f"slotwise-{job_id}-{attempt}"


class KubernetesCluster:
    """Implements `app.cluster.ports.ExecutorCluster`."""

    def __init__(
        self,
        master: str,
        namespace: str,
        api: KubernetesApi,
        *,
        slots: int,
        pods: PodSettings,
        driver_host: str,
        driver_pod: str | None = None,
        patience_s: float,
        now_ms: Callable[[], int],
        home: str = "server",
    ) -> None:
        """``slots``: the most executors. ``driver_pod``: the pod that this process runs in. ``patience_s``: how long a
        pod may find no node. ``home``: the lasting name of this server."""
        self.master = master
        self.poll_s = 2.0
        self.namespace = namespace
        self._api = api
        self._declared = slots
        self._pod_settings = pods
        self.demand = pods.demand
        self._driver_host = driver_host
        self._driver_pod = driver_pod
        self._patience_s = patience_s
        self._learnt = Experience()
        self._room = Room(slots, 0)
        self._pods: tuple[Pod, ...] = ()
        self._probe = Probe(api, pods, home)
        self._probing: Pod | None = None
        self._is_waited_for = False
        self._seen_at: float | None = None
        self._told: str | None = None
        self._why = ""
        self._blind_to_quotas = False
        self.periodic = Periodic()
        self._now_ms = now_ms
        self._reachability = Reachability("The Kubernetes API", now_ms)
        self.since_ms = now_ms()

    @property
    def task_manager(self) -> str:
        """The one that has all slots: where a pod runs is for Kubernetes to say, and comes after the slot was given."""
        return f"kubernetes-{self.namespace}"

    @property
    def host(self) -> str:
        return self._api.server.partition("://")[2]

    @property
    def slots(self) -> int:
        return self._room.slots

    @property
    def unreachable(self) -> str:
        return self._reachability.unreachable

    @property
    def first_executor_s(self) -> float:
        """For a node at least as long as the pods may find none."""
        return max(FIRST_EXECUTOR_S, self._patience_s + _POD_START_S)

    def executor_conf(self, job_id: str, attempt: int) -> dict[str, str]:
        """For a driver in client mode: Spark asks the API for pods itself."""
        pods = self._pod_settings
        conf = {
            "spark.kubernetes.namespace": self.namespace,
            "spark.kubernetes.container.image": pods.image,
            "spark.kubernetes.executor.podNamePrefix": pod_name_prefix(job_id, attempt),
            f"spark.kubernetes.executor.label.{JOB_LABEL}": job_id,
            f"spark.kubernetes.executor.label.{ATTEMPT_LABEL}": str(attempt),
            "spark.kubernetes.executor.request.cores": pods.cpu,
            "spark.executor.memory": f"{pods.memory_mb}m",
            "spark.executor.memoryOverhead": f"{pods.overhead_mb}m",
            "spark.driver.host": self._driver_host,
            "spark.driver.bindAddress": self._driver_host,
            # Only executors that got the secret, with their pods, may register.
            "spark.authenticate": "true",
            "spark.kubernetes.executor.deleteOnTermination": "true",
            # Pods that are not wanted any more and have not come are deleted when they are older than this. Nothing
            # else asks for it, for dynamic allocation is stopped.
            "spark.dynamicAllocation.executorIdleTimeout": "10s",
            # `Executors.await_first` waits, not the start of the context.
            "spark.scheduler.minRegisteredResourcesRatio": "0",
            FIRST_EXECUTOR_SETTING: f"{self.first_executor_s:g}",
            # What a driver that is killed would leave behind, and needs more permissions than pods do.
            "spark.kubernetes.executor.disableConfigMap": "true",
            "spark.kubernetes.driver.service.deleteOnTermination": "false",
            "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
            "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        }
        optional = {
            "spark.kubernetes.executor.limit.cores": pods.cpu_limit,
            "spark.kubernetes.authenticate.executor.serviceAccountName": pods.service_account,
            "spark.kubernetes.executor.podTemplateFile": pods.template,
            "spark.kubernetes.driver.pod.name": self._driver_pod,
        }
        return conf | {key: str(value) for key, value in optional.items() if value is not None}

    async def runtime_fault(self, spark_version: str) -> str:
        return "in pods jobs run with the Python, the PySpark and the jars of their image only. Leave it out."

    def application_name(self, job_name: str, job_id: str, attempt: int) -> str:
        return job_name

    async def look(self, is_ours: Callable[[str], bool]) -> Offer:
        """What the namespace offers now."""
        now = time.monotonic()
        try:
            everybodys, quotas = read_pods(await self._api.pods()), await self._quotas()
        except (ApiError, NotFromTheApi) as error:
            patient = isinstance(error, ApiError) and error.is_throttled
            if patient and self._seen_at is not None and now - self._seen_at < _THROTTLED_S:
                return self._offer()
            self._pods = ()
            self._reachability.lost(str(error))
            self._tell(f"the Kubernetes API is away; jobs go on with the executors that they have: {error}")
            return self._offer()
        self._reachability.found()
        # Pods of another server's jobs are somebody else's.
        pods = tuple(pod for pod in everybodys if is_ours(pod.job_id))
        self._pods, self._seen_at = pods, now
        self._probing = next((pod for pod in everybodys if pod.job_id == self._probe.label), None)
        self._room, self._learnt = settle(
            pods,
            quotas,
            self._learnt,
            declared=self._declared,
            demand=self.demand,
            patience_s=self._patience_s,
            now_s=now,
            probe=self._probing,
            is_waited_for=self._is_waited_for,
        )
        offered = self._room.slots - self._room.withheld
        self._why = f"{offered} of {self._declared} slots are offered: {self._room.why}" * bool(
            self._room.why
        )
        self._tell(self._why)
        return self._offer()

    async def tidy(self, is_over: Callable[[str], bool]) -> None:
        """Delete the pods of jobs that are over, again and again: drivers end abruptly, and a pod that waits for a node
        would wait for ever."""

        async def once() -> None:
            left = [pod for pod in self._pods if not pod.ending and is_over(pod.job_id)]
            if left:
                try:
                    await self._delete(left)
                except ApiError as error:
                    log.warning("pods of jobs that are over cannot be deleted", error=str(error))

        await self.periodic.run("deletes the pods of jobs that are over", once, every_s=self.poll_s)

    async def ask_for_room(self, is_waited_for: Callable[[], bool]) -> None:
        """While no executor has room and a job waits for slots (``is_waited_for``), find out when there is some, again
        and again, by a pod that is like theirs. The next look then offers all slots."""

        async def once() -> None:
            if self.unreachable:
                return
            self._is_waited_for = self._learnt.cap is not None and is_waited_for()
            if not self._is_waited_for or self._learnt.cap:
                await self._probe.stop(self._probing)
            elif await self._probe.ask(self._probing, time.monotonic()):
                log.info("there is room for pods again", namespace=self.namespace)
                self._learnt = reopened(self._learnt)

        await self.periodic.run("asks for room", once, every_s=self.poll_s)

    async def executor_log(
        self, job_id: str, attempts: range, executor: int, output: str, begin: int, size: int
    ) -> ExecutorLog:
        raise ExecutorLogElsewhere(
            "Logs of executors on Kubernetes are those of their pods: see kubectl logs."
        )

    async def cleared(self, job_id: str) -> None:
        """Delete the pods of the job's earlier drivers, and wait until their processes have ended. If that takes too
        long, as on a node that is cut off, go on: what such an executor may still do is write files of state, which are
        replaced whole; only a driver commits what a sink is given."""
        deadline = time.monotonic() + _CLEARED_DEADLINE_S
        asked: set[str] = set()
        reason = ""
        while time.monotonic() < deadline:
            try:
                pods = read_pods(await self._api.pods(job_id))
                await self._delete([pod for pod in pods if pod.uid not in asked])
                asked |= {pod.uid for pod in pods}
                alive = [pod.name for pod in pods if not pod.is_over]
                if not alive:
                    return
                reason = f"still there: {', '.join(alive)}"
            except (ApiError, NotFromTheApi) as error:
                reason = str(error)
            await asyncio.sleep(_CLEARED_POLL_S)
        log.warning("executors of a driver that is gone may live", job=job_id, reason=reason)

    async def close(self) -> None:
        if not self.unreachable:
            # Nobody may be there again who would take it away.
            await self._probe.stop(self._probing)
        await self._api.close()

    # -- inside

    async def _quotas(self) -> tuple[Quota, ...]:
        """None are known to an account that may not read them; pods beyond them are then refused when they are made."""
        try:
            quotas = read_quotas(await self._api.quotas())
        except ApiError as error:
            if error.status not in _FORBIDDEN:
                raise
            if not self._blind_to_quotas:
                log.warning("resource quotas cannot be read, and are not minded", error=str(error))
            self._blind_to_quotas = True
            return ()
        self._blind_to_quotas = False
        return quotas

    async def _delete(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            log.info("pod deleted", pod=pod.name, job=pod.job_id, attempt=pod.attempt)
            await self._api.delete_pod(pod.name, pod.uid)

    def _offer(self) -> Offer:
        room = self._room
        why = [self.unreachable, f"{self._why}." * bool(self._why)]
        return Offer(
            ((self.task_manager, room.slots),),
            withheld=room.withheld,
            unreachable=bool(self.unreachable),
            why=tuple(each for each in why if each),
        )

    def _tell(self, reason: str) -> None:
        """Log a change once."""
        if reason and self._told != reason:
            log.warning(reason, namespace=self.namespace)
        elif not reason and self._told:
            log.info("all slots of the namespace are offered", namespace=self.namespace)
        self._told = reason


def whole_cores(slots: int, cpu: Fraction) -> int:
    """The cores that ``slots`` executors ask for, rounded up."""
    return max(1, math.ceil(slots * cpu))


def java_options(token_file: Path | None, ca_file: Path | None) -> tuple[str, ...]:
    """Options of the JVM of each driver: how Spark's client authenticates.

    Spark's own setting for a token file reads it once. Its client itself reads the file again when the token is
    refused, and each minute; so it is told directly, and that no kubeconfig of this user is to be mixed in.
    """
    options = ["-Dkubernetes.auth.tryKubeConfig=false"]
    if token_file is not None:
        options.append(f"-Dkubernetes.auth.serviceAccount.token={token_file}")
    if ca_file is not None:
        options.append(f"-Dkubernetes.certs.ca.file={ca_file}")
    return tuple(options)
