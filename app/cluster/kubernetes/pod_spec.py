"""The specifications of executor pods, and of pods that the server itself requests, which lack the parts that
Spark adds.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from app.cluster.kubernetes.api import ApiError, KubernetesApi
from app.cluster.kubernetes.namespace import Demand, Pod
from app.cluster.kubernetes.template import TemplateError, read_template
from app.model.kubenames import JOB_LABEL, parse_quantity

log = structlog.get_logger()

EXECUTOR_CONTAINER = "spark-kubernetes-executor"
# What would be run beside the process, or keep an end of it waiting.
_OF_EXECUTORS = ("args", "command", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
RENEWED_S = 60.0
"""A pod that has found no room is replaced: the scheduler looks at a new one at once."""
_PULLING_S = 600.0
"""For how long one that has a node may pull its image."""
_GRACE_S = 1
_CONFLICT = 409


@dataclass(frozen=True, slots=True)
class PodSettings:
    """What the pods of executors are to be like. Quantities as Kubernetes writes them."""

    image: str
    service_account: str | None = None
    memory_mb: int = 512
    overhead_mb: int = 512
    cpu: str = "1"
    cpu_limit: str | None = None
    template: Path | None = None

    @property
    def demand(self) -> Demand:
        return Demand(
            cpu=parse_quantity(self.cpu),
            memory_bytes=(self.memory_mb + self.overhead_mb) << 20,
            cpu_limit=None if self.cpu_limit is None else parse_quantity(self.cpu_limit),
        )


def pod_like_executors(
    name: str, labels: Mapping[str, str], pods: PodSettings, command: list[str] | None = None
) -> dict[str, Any]:
    """A pod that needs the node, the image, the volumes and the rights that executors need. ``command``: what it runs
    instead of an executor.

    Raises:
        TemplateError: the template cannot be used.
    """
    template = {} if pods.template is None else read_template(pods.template)
    spec: dict[str, Any] = copy.deepcopy(template.get("spec") or {})
    containers: list[dict[str, Any]] = spec.get("containers") or [{}]
    first, *others = containers
    memory = f"{pods.memory_mb + pods.overhead_mb}Mi"
    limits = {"memory": memory, **({} if pods.cpu_limit is None else {"cpu": pods.cpu_limit})}
    resources = first.get("resources") or {}
    container = {
        **{key: value for key, value in first.items() if key not in _OF_EXECUTORS},
        "name": first.get("name") or EXECUTOR_CONTAINER,
        "image": pods.image,
        **({"args": ["executor"]} if command is None else {"command": command}),
        "resources": {
            **resources,
            "requests": {**(resources.get("requests") or {}), "cpu": pods.cpu, "memory": memory},
            "limits": {**(resources.get("limits") or {}), **limits},
        },
    }
    metadata = template.get("metadata") or {}
    account = {} if pods.service_account is None else {"serviceAccountName": pods.service_account}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {**(metadata.get("labels") or {}), "spark-role": "executor", **labels},
            **({"annotations": metadata["annotations"]} if metadata.get("annotations") else {}),
        },
        "spec": {**spec, "restartPolicy": "Never", "containers": [container, *others], **account},
    }


class Probe:
    """One pod that asks for room while no executor has any.

    That there is room shows only when a pod is asked for. Drivers do so when slots are offered again, which costs a
    start each, so it is done more and more seldom; a job that waits would be given up meanwhile. So while somebody
    waits, and not one slot is there, the server asks itself: one pod like an executor's, that runs nothing and ends.
    When it has run, there is a node for it and its image can be pulled there, and slots are offered again.

    ``home``: names the server, so that what it leaves when it dies is found by the next one.
    """

    def __init__(self, api: KubernetesApi, pods: PodSettings, home: str) -> None:
        self._api = api
        self._pods = pods
        self.label = f"probe-{home}"
        self._name = f"slotwise-{self.label}"
        self._asked_at = 0.0
        self._uid = ""
        self._seen_at = 0.0
        self._trouble = ""

    async def ask(self, found: Pod | None, now_s: float) -> bool:
        """Keep a pod that asks; ``found``: the one of the last look. Whether it has shown that there is room."""
        if found is None:
            await self._make(now_s)
            return False
        if found.uid != self._uid:
            self._uid, self._seen_at = found.uid, now_s
        if found.ending:
            return False
        if found.started and found.refused is None:
            await self._delete(found)
            return True
        pulls = found.placed and found.refused is None
        if found.is_over or now_s - self._seen_at >= (_PULLING_S if pulls else RENEWED_S):
            await self._delete(found)
        return False

    async def stop(self, found: Pod | None) -> None:
        """No job waits, or there is room."""
        if found is not None and not found.ending:
            await self._delete(found)

    async def _make(self, now_s: float) -> None:
        if now_s - self._asked_at < RENEWED_S / 6:
            # The one that was made is not in the list yet, or it was refused.
            return
        self._asked_at = now_s
        try:
            pod = pod_like_executors(self._name, {JOB_LABEL: self.label}, self._pods, command=["true"])
            pod["spec"]["terminationGracePeriodSeconds"] = _GRACE_S
            await self._api.make_pod(pod)
        except (ApiError, TemplateError) as error:
            if getattr(error, "status", None) != _CONFLICT:
                self._tell(str(error))
            return
        self._tell("")
        log.info("a pod asks for room", pod=self._name)

    async def _delete(self, pod: Pod) -> None:
        try:
            await self._api.delete_pod(pod.name, pod.uid, grace_s=_GRACE_S)
        except ApiError as error:
            self._tell(str(error))

    def _tell(self, trouble: str) -> None:
        """Log a change once."""
        if trouble and trouble != self._trouble:
            log.warning("no pod can ask for room", error=trouble)
        self._trouble = trouble
