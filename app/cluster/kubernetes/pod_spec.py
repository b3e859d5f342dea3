"""The specifications of executor pods, and of pods that the server itself requests, which lack the parts that
Spark adds; and their template in the settings (`cluster_pod_template`).

Spark reads the template in each driver, and fails there, after a job was submitted. So it is read before a server
starts.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from app.cluster.kubernetes.namespace import Demand
from app.model.kubenames import parse_quantity

SETTING = "cluster_pod_template"
# What lives and ends with the pod, or cannot be written to.
_OWN_VOLUMES = ("emptyDir", "configMap", "secret", "downwardAPI", "projected", "ephemeral", "image")


class _Loader(yaml.SafeLoader):
    """A date is text, as for Kubernetes, whose documents are JSON."""


_Loader.yaml_implicit_resolvers = {
    sign: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
    for sign, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class TemplateError(ValueError):
    """The template cannot be used; the message is a sentence that names the setting."""


def read_template(path: Path) -> dict[str, Any]:
    """The one Pod that the file has.

    Raises:
        TemplateError: it is not there, not YAML, or not a Pod with a container.
    """
    try:
        documents = list(yaml.load_all(path.read_text(encoding="utf-8"), _Loader))
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _wrong(path, "is not text in UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" (line {mark.line + 1}: {getattr(error, 'problem', '')})"
        raise _wrong(path, f"is not YAML{where}") from None
    except (ValueError, RecursionError) as error:
        # A tag on what is none of its kind, or brackets in brackets.
        raise _wrong(path, f"cannot be read as YAML: {_first_line(error)}") from None
    documents = [document for document in documents if document is not None]
    if len(documents) != 1:
        raise _wrong(path, f"should have one document, a Pod, and has {len(documents)}")
    fault = _fault_of(documents[0])
    if fault is not None:
        raise _wrong(path, fault)
    return dict(documents[0])


def executor_of(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """The container that Spark makes the executor's: the first one."""
    container: Mapping[str, Any] = template["spec"]["containers"][0]
    return container


def why_unseen(template: Mapping[str, Any] | None, place: Path) -> str | None:
    """Why executors do not see ``place``, to follow its name; None if a volume is mounted there. What is added to pods
    when they are made (an admission webhook) is not known here."""
    if template is None:
        return f"{SETTING} is not set, so nothing is mounted in the pods"
    above = [
        mount
        for mount in executor_of(template).get("volumeMounts") or ()
        if PurePosixPath(place).is_relative_to(PurePosixPath(str(mount["mountPath"])))
    ]
    if not above:
        return f"no volume is mounted there in the first container of {SETTING}"
    nearest = max(above, key=lambda mount: len(PurePosixPath(str(mount["mountPath"])).parts))
    volumes = {one.get("name"): one for one in template["spec"].get("volumes") or ()}
    volume = volumes.get(nearest.get("name"), {})
    own = next((kind for kind in _OWN_VOLUMES if kind in volume), None)
    if own is not None:
        return f"the volume that {SETTING} mounts there, {nearest.get('name')}, is the pod's own ({own})"
    if nearest.get("readOnly") is True:
        return f"{SETTING} mounts it there for reading only (readOnly)"
    return None


def is_on_host_network(template: Mapping[str, Any] | None) -> bool:
    """Whether the loopback address of pods is that of their node."""
    return template is not None and template["spec"].get("hostNetwork") is True


def _wrong(path: Path, what: str) -> TemplateError:
    return TemplateError(f"{SETTING}: the file {path} {what}.")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _fault_of(document: Any) -> str | None:
    """What is wrong with it, to follow its name; None if nothing that can be told without the API."""
    try:
        json.dumps(document, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return f"has something that a document of Kubernetes cannot have: {_first_line(error)}"
    return _fault_of_pod(document) or _fault_of_parts(document)


def _fault_of_pod(document: Any) -> str | None:
    if not isinstance(document, Mapping):
        return "should be a Pod (kind: Pod, apiVersion: v1)"
    if (kind := document.get("kind")) != "Pod":
        return (
            f"should be a Pod (kind: Pod), found kind {kind!r}" if kind else "has no kind: it should be a Pod"
        )
    if document.get("apiVersion") != "v1":
        return f"should have apiVersion v1, found {document.get('apiVersion')!r}"
    spec = document.get("spec")
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    if not _are_mappings(containers) or not containers:
        return (
            "should have a Pod with at least one container (spec.containers): the first one is the executor's"
        )
    assert isinstance(spec, Mapping)
    if not _are_mappings(spec.get("volumes") or ()):
        return "should have a list of volumes in spec.volumes"
    mounts = containers[0].get("volumeMounts") or ()
    if not _are_mappings(mounts) or not all(isinstance(one.get("mountPath"), str) for one in mounts):
        return "should have a list of mounts with a mountPath each in spec.containers[0].volumeMounts"
    if not isinstance(document.get("metadata") or {}, Mapping):
        return "should have a mapping as its metadata"
    return None


def _fault_of_parts(document: Mapping[str, Any]) -> str | None:
    """Of those that are put together with what the settings say."""
    metadata = document.get("metadata") or {}
    for name in ("labels", "annotations"):
        if not isinstance(metadata.get(name) or {}, Mapping):
            return f"should have a mapping in metadata.{name}"
    resources = executor_of(document).get("resources") or {}
    if not isinstance(resources, Mapping):
        return "should have a mapping in spec.containers[0].resources"
    for name in ("requests", "limits"):
        if not isinstance(resources.get(name) or {}, Mapping):
            return f"should have a mapping in spec.containers[0].resources.{name}"
    return None


def _are_mappings(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(isinstance(one, Mapping) for one in value)
    )


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
