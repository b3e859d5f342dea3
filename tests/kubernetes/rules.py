"""What the API's reference says of pods and selectors, as far as the recorded API needs it."""

from __future__ import annotations

import re
from typing import Any

from app.model.kubenames import is_subdomain, parse_quantity

_LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def pod_faults(pod: Any) -> list[str]:
    """For what a real API server would refuse this pod, as far as the recording's reference goes."""
    faults = []
    if (pod.get("kind"), pod.get("apiVersion")) != ("Pod", "v1"):
        faults.append("is no v1 Pod")
    metadata = pod.get("metadata", {})
    if not is_subdomain(metadata.get("name", "")):
        faults.append(f"has the name {metadata.get('name')}")
    for key, value in (metadata.get("labels") or {}).items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            faults.append(f"has the label {key}={value}")
    containers = pod.get("spec", {}).get("containers") or []
    if not containers:
        faults.append("has no container")
    for container in containers:
        if not container.get("image"):
            faults.append("has a container without an image")
        for kind in ("requests", "limits"):
            for resource, quantity in (container.get("resources", {}).get(kind) or {}).items():
                try:
                    parse_quantity(str(quantity))
                except ValueError:
                    faults.append(f"has {kind} of {resource} {quantity}")
        if any(not entry.get("name") for entry in container.get("env", ())):
            faults.append("has a variable without a name")
    return faults


def selected(pod: dict[str, Any], query: dict[str, str]) -> bool:
    labels = pod["metadata"].get("labels") or {}
    for term in filter(None, re.split(r",(?![^(]*\))", query.get("labelSelector", ""))):
        found = re.fullmatch(r"([^\s!=,()]+)(?:(==?|!=)([^\s!=,()]*)| in \(([^()]*)\))?", term)
        assert found is not None, f"the selector {term!r} is not known here"
        key, sign, value, values = found.groups()
        wanted = [value] if sign else values.split(",") if values is not None else None
        there = key in labels if wanted is None else labels.get(key) in wanted
        if there is (sign == "!="):
            return False
    for term in filter(None, query.get("fieldSelector", "").split(",")):
        key, value = term.split("=", 1)
        assert key in ("status.phase", "metadata.name"), term
        found_value = pod["status"]["phase"] if key == "status.phase" else pod["metadata"]["name"]
        if found_value != value:
            return False
    return True
