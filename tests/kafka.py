"""A Kafka broker for tests: one node in KRaft mode on loopback, in a temporary directory, that dies with the tests.

Its jars come from the Maven registry by their coordinates, once, into a cache directory.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

VERSION = "4.1.0"
# The broker, and the programs that make topics, send and read.
ARTIFACTS = ("kafka_2.13", "kafka-tools")
# What a broker and its tools need is a third of the heap that they take by themselves.
JAVA = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx384m"]
START_TIMEOUT_S = 90.0
FETCH_TIMEOUT_S = 240.0
DEPENDENCIES = "".join(
    f"<dependency><groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId>"
    f"<version>{VERSION}</version></dependency>"
    for artifact in ARTIFACTS
)
PROJECT = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>tests</groupId><artifactId>broker</artifactId><version>1</version>
  <dependencies>{DEPENDENCIES}</dependencies>
</project>
"""


class KafkaMissing(Exception):
    """There are no jars of a broker here, and none to be had."""


def jars() -> Path:
    """The directory of a broker's jars; the first call on a machine fetches them.

    Raises:
        KafkaMissing: the registry does not serve them, or there is no Maven to ask it with.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slotwise-tests"
    folder = cache / f"kafka-{VERSION}"
    if folder.exists():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaMissing(f"the jars of Kafka {VERSION} are not in {cache}, and Maven is not installed here")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as temporary:
        Path(temporary, "pom.xml").write_text(PROJECT, encoding="utf-8")
        command = [maven, "--quiet", "--batch-mode", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
        try:
            done = subprocess.run(
                command, cwd=temporary, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            raise KafkaMissing(f"Maven did not fetch Kafka {VERSION} in {FETCH_TIMEOUT_S:.0f} s") from None
        if done.returncode != 0:
            said = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
            raise KafkaMissing(f"the Maven registry does not serve Kafka {VERSION}: {' '.join(said[:1])}")
        if not folder.exists():
            Path(temporary, "jars").rename(folder)
    return folder


@dataclass
class KafkaBroker:
    """A running broker. `stop` ends it and removes its files."""

    directory: Path
    jars: Path
    port: int
    controller_port: int
    process: subprocess.Popen[bytes] | None = None
    # By topic: how many records were sent to it.
    sent: Counter[str] = field(default_factory=Counter)

    @classmethod
    def start(cls) -> KafkaBroker:
        found = jars()
        with ExitStack() as sockets:
            probes = [sockets.enter_context(socket.socket()) for _ in range(2)]
            for probe in probes:
                probe.bind(("127.0.0.1", 0))
            ports = [int(probe.getsockname()[1]) for probe in probes]
        broker = cls(Path(tempfile.mkdtemp(prefix="slotwise-kafka-")), found, *ports)
        try:
            broker._initialise()
            broker.launch()
        except BaseException:
            broker.stop()
            raise
        return broker

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _initialise(self) -> None:
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://{self.servers},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.servers}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.directory / "logs"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        (self.directory / "server.properties").write_text(lines, encoding="utf-8")
        self.tool(
            "kafka.tools.StorageTool",
            "format",
            "--standalone",
            "-t",
            "c2xvdHdpc2UtdGVzdHMwMA",
            "-c",
            self._settings,
        )

    @property
    def _settings(self) -> str:
        return str(self.directory / "server.properties")

    def tool(self, name: str, *arguments: str, text: str = "") -> str:
        """Run one of Kafka's own programs, with ``text`` on its standard input; what it printed."""
        command = [*JAVA, "-cp", f"{self.jars}/*", name, *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{name} {' '.join(arguments)} failed: {done.stdout}{done.stderr}")
        return done.stdout

    def launch(self) -> None:
        """Start the broker (again), and wait until it answers. Call it from the main thread: the broker ends with the
        thread that started it."""
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*_dies_with_us(), *JAVA, "-cp", f"{self.jars}/*", "kafka.Kafka", self._settings],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=2).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    said = (self.directory / "server.log").read_text(encoding="utf-8")
                    raise RuntimeError(f"Kafka did not start: {said[-2000:]}") from None
                time.sleep(0.1)

    def create_topic(self, name: str, partitions: int) -> None:
        options = ["--bootstrap-server", self.servers, "--topic", name, "--partitions", str(partitions)]
        self.tool("org.apache.kafka.tools.TopicCommand", "--create", *options, "--replication-factor", "1")

    def send(self, topic: str, lines: list[str]) -> None:
        name = "org.apache.kafka.tools.ConsoleProducer"
        text = "".join(f"{line}\n" for line in lines)
        self.tool(
            name,
            "--bootstrap-server",
            self.servers,
            "--topic",
            topic,
            "--property",
            "parse.key=true",
            text=text,
        )
        self.sent[topic] += len(lines)

    def ends(self, topic: str) -> dict[str, int]:
        """By the number of each partition: where its next record will be."""
        name, at = (
            "org.apache.kafka.tools.GetOffsetShell",
            ["--bootstrap-server", self.servers, "--topic", topic],
        )
        lines = (line.split(":") for line in self.tool(name, *at).split())
        return {partition: int(end) for _, partition, end in lines}

    def read(self, topic: str) -> list[tuple[str, str]]:
        """Keys and values of all records of a topic; those of one key in their order."""
        at = ["--bootstrap-server", self.servers, "--topic", topic]
        records = sum(self.ends(topic).values())
        if records == 0:
            return []
        options = ["--from-beginning", "--max-messages", str(records), "--timeout-ms", "60000"]
        name = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        lines = self.tool(name, *at, *options, "--property", "print.key=true").splitlines()
        return [(key, value) for key, _, value in (line.partition("\t") for line in lines)]

    def kill(self) -> None:
        """End the broker as a crash would."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(START_TIMEOUT_S)
            self.process = None

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def _dies_with_us() -> list[str]:
    """A prefix for a command that the kernel kills when the thread that starts it has ended. A JVM outlives SIGQUIT."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []
