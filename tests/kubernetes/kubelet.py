"""Runs the pods of a `ReplayApi` as processes of this host, by the entry point of the image in examples/kubernetes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from app.cluster.java import usable_java
from tests.environments import quick_java
from tests.kubernetes.replay import ReplayApi

ROOT = Path(__file__).resolve().parents[2]
ENTRY_POINT = ROOT / "examples/kubernetes/entrypoint.sh"


class Kubelet:
    """``room``: how many pods find a node; the others wait."""

    def __init__(self, api: ReplayApi, directory: Path, room: int) -> None:
        self.api = api
        self.room = room
        self.directory = directory
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._java = usable_java().command
        self._lock = threading.RLock()
        self._waiting: list[dict[str, Any]] = []
        self._closed = False
        api.on_pod = self._on_pod
        api.on_delete = self._on_delete

    def close(self) -> None:
        with self._lock:
            self._closed = True
            processes = list(self.processes.values())
        for process in processes:
            process.kill()
            process.wait()

    def drain(self, name: str) -> None:
        """What a node that is drained does first: run the pod's script, until it ends. In a container `ps` shows one
        executor; so here it does."""
        (container,) = self.api.pods[name]["spec"]["containers"]
        assert container["lifecycle"]["preStop"]["exec"]["command"] == ["/opt/decom.sh"]
        shown = self.directory / name / "ps"
        shown.write_text(f"#!/bin/sh\necho '{self.processes[name].pid} java KubernetesExecutorBackend'\n")
        shown.chmod(0o755)
        environment = {**os.environ, "PATH": f"{shown.parent}:{os.environ['PATH']}"}
        # A process that has ended is not gone before somebody has asked for its status: `_await` does.
        subprocess.run(
            ["sh", str(ENTRY_POINT.with_name("decom.sh"))], check=True, timeout=60, env=environment
        )

    @property
    def running(self) -> list[str]:
        with self._lock:
            return [name for name, process in self.processes.items() if process.poll() is None]

    def more_room(self, room: int) -> None:
        """A node has come."""
        with self._lock:
            self.room = room
            self._schedule()

    def _on_pod(self, pod: dict[str, Any]) -> None:
        with self._lock:
            self._waiting.append(pod)
            self._schedule()

    def _schedule(self) -> None:
        while self._waiting and not self._closed:
            pod = self._waiting[0]
            name = pod["metadata"]["name"]
            if name not in self.api.pods:
                self._waiting.pop(0)
                continue
            if len(self.running) >= self.room:
                break
            self._waiting.pop(0)
            self.api.stage(name, "scheduled", node="node-a")
            if pod["spec"]["containers"][0].get("command") == ["true"]:
                self.api.stage(name, "succeeded")
                continue
            process = self._start(pod)
            self.processes[name] = process
            self.api.stage(name, "running")
            threading.Thread(target=self._await, args=(name, process), daemon=True).start()
        for pod in self._waiting:
            if pod["metadata"]["name"] in self.api.pods:
                self.api.stage(pod["metadata"]["name"], "unschedulable")

    def _start(self, pod: dict[str, Any]) -> subprocess.Popen[bytes]:
        """The process of the one container. A volume that is an emptyDir is a directory here."""
        (container,) = pod["spec"]["containers"]
        assert container["args"] == ["executor"]
        variables = {entry["name"]: _value(entry, pod) for entry in container["env"]}
        scratch = self.directory / pod["metadata"]["name"]
        scratch.mkdir(parents=True)
        empty = {one["name"] for one in pod["spec"].get("volumes", ()) if "emptyDir" in one}
        mounted = [one["mountPath"] for one in container.get("volumeMounts", ()) if one["name"] in empty]
        assert variables["SPARK_LOCAL_DIRS"] in mounted
        variables["SPARK_LOCAL_DIRS"] = str(scratch)
        # What the image brings along: a path, Java, Python, and Slotwise.
        brought = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        brought |= {
            "JAVA_HOME": str(Path(self._java).parents[1]),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            # An image may have an archive of class data.
            "JAVA_TOOL_OPTIONS": quick_java(),
        }
        command = ["sh", str(ENTRY_POINT), *container["args"]]
        with open(scratch / "log", "wb") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**brought, **variables},
                cwd=scratch,
            )

    def _await(self, name: str, process: subprocess.Popen[bytes]) -> None:
        status = process.wait()
        with self._lock:
            pod = self.api.pods.get(name)
            if pod is not None and "deletionTimestamp" in pod["metadata"]:
                self.api.remove(name)
            else:
                self.api.stage(name, "succeeded" if status == 0 else "failed")
            self._schedule()

    def _on_delete(self, pod: dict[str, Any], grace_s: int) -> None:
        process = self.processes.get(pod["metadata"]["name"])
        if process is None:
            self.api.remove(pod["metadata"]["name"])
            return
        process.terminate()
        timer = threading.Timer(grace_s, lambda: _kill(process))
        timer.daemon = True
        timer.start()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def _value(entry: dict[str, Any], pod: dict[str, Any]) -> str:
    """The value of a variable; those of the downward API as a kubelet gives them."""
    if "value" in entry:
        return str(entry["value"])
    path = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
    return {"status.podIP": "127.0.0.1", "metadata.name": pod["metadata"]["name"]}.get(path, "")
