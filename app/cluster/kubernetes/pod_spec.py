"""The specifications of executor pods, and of pods that the server itself requests, which lack the parts that
Spark adds.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.cluster.kubernetes.namespace import Demand
from app.cluster.kubernetes.template import read_template
from app.model.kubenames import parse_quantity

EXECUTOR_CONTAINER = "spark-kubernetes-executor"
# What would be run beside the process, or keep an end of it waiting.
_OF_EXECUTORS = ("args", "command", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe")


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
