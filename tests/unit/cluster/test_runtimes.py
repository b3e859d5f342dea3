"""What drivers of programs are started with: found, built once, or refused in one sentence."""

from __future__ import annotations

import asyncio
import os
import tarfile
import tempfile
from pathlib import Path

import httpx
import pytest

from app.cluster import runtimes as module
from app.cluster.driveruser import DriverUser
from app.cluster.environments import EnvironmentRefused, Pythons
from app.cluster.java import Java
from app.cluster.runtimes import OWN, Builds, Runtimes, told_by, with_pyspark
from app.cluster.standalone.cluster import StandaloneCluster
from app.model.environment import EnvironmentSpec, Runtime
from app.settings import SettingsError, load_settings


def stand_in(directory: Path, says: str) -> Path:
    """A Python, as far as it is asked."""
    directory.mkdir(parents=True, exist_ok=True)
    python = directory / "python"
    python.write_text(f"#!/bin/sh\n{says}\n")
    python.chmod(0o755)
    return python


def answer(version: str = "[3, 12, 1]", spark: str = '"4.2.0"', home: str = '"/spark"') -> str:
    return f"""echo noise; echo '{{"version": {version}, "spark": {spark}, "home": {home}}}'"""


@pytest.fixture
def runtimes(tmp_path: Path) -> Runtimes:
    return Runtimes(tmp_path / "cache", Java("/checked/java", "21"), repository="https://repository/")


async def refusal(runtimes: Runtimes, runtime: Runtime) -> str:
    with pytest.raises(EnvironmentRefused) as caught:
        await runtimes.kind(runtime)
    assert not caught.value.recoverable
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("says", "said"),
    [
        (answer(version="[3, 10, 13]"), "is Python 3.10.13: a driver needs Python 3.11 or newer."),
        (answer(version="[2, 7, 18]", spark="null", home="null"), "is Python 2.7.18"),
        (answer(spark="null", home="null"), "has no PySpark: install pyspark of 4.1, 4.2 or 4.3 there."),
        (answer(home="null"), "has no jars of PySpark (pyspark-client has none)"),
        (answer(spark='"3.5.6"'), "has PySpark 3.5.6: Slotwise runs PySpark 4.1, 4.2 and 4.3."),
        ("echo broken >&2; exit 3", "ended with exit status 3 and said: broken."),
        ("exit 0", "does not answer as a Python does"),
        ("yes", "has not answered within 1 s"),
        ("sleep 60", "has not answered within 1 s"),
    ],
)
async def test_a_python_that_drivers_cannot_run_on(
    runtimes: Runtimes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, said: str
) -> None:
    monkeypatch.setattr("app.cluster.environments._PROBE_S", 1)
    python = stand_in(tmp_path, says)
    sentence = await refusal(runtimes, Runtime(EnvironmentSpec(python=str(python))))
    assert sentence.startswith(f"environment.python: {python} ")
    assert said in sentence


async def test_no_python_at_all(runtimes: Runtimes, tmp_path: Path) -> None:
    path = str(tmp_path / "none")
    sentence = await refusal(runtimes, Runtime(EnvironmentSpec(python=path)))
    assert sentence == f"environment.python: there is no file {path} on the host of the server."
    (tmp_path / "none").touch(0o644)
    assert "may not execute" in await refusal(runtimes, Runtime(EnvironmentSpec(python=path)))


async def test_a_python_is_asked_again_when_its_libraries_were_changed(tmp_path: Path) -> None:
    home = tmp_path / "spark"
    home.mkdir()
    (home / "version.py").touch()
    python = stand_in(tmp_path, f"echo asked >> {tmp_path}/asked; " + answer(home=f'"{home}"'))
    pythons = Pythons()
    for _ in range(3):
        assert (await pythons.look(str(python))).spark_version == "4.2.0"
    assert (tmp_path / "asked").read_text() == "asked\n"
    (home / "version.py").unlink()
    (home / "version.py").touch()
    await pythons.look(str(python))
    assert (tmp_path / "asked").read_text() == "asked\nasked\n"
    # So it is when a library is installed beside its PySpark.
    (tmp_path / "pyarrow").mkdir()
    await pythons.look(str(python))
    assert (tmp_path / "asked").read_text() == "asked\n" * 3


async def test_the_environment_of_the_server_is_what_is_left_out(runtimes: Runtimes) -> None:
    assert await runtimes.kind(None) == await runtimes.kind(Runtime()) == OWN


async def test_executors_of_a_cluster_need_the_spark_of_their_driver(tmp_path: Path) -> None:
    def answer_page(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/"
        return httpx.Response(200, text=f'<span class="version{more}">{version}</span> Spark Master')

    # 4.1 has a style there, later ones a class more.
    version, more = "4.2.0", " me-3"
    cluster = StandaloneCluster(
        "spark://m:1", ["http://m:2"], executor_memory_mb=512, driver_host="127.0.0.1", now_ms=lambda: 1
    )
    await cluster.close()
    cluster._http = httpx.AsyncClient(transport=httpx.MockTransport(answer_page))
    runtimes = Runtimes(tmp_path, Java("java", "21"), repository="https://repository/", cluster=cluster)
    assert await runtimes.kind(None) == OWN
    python = stand_in(tmp_path, answer())
    runtime = Runtime(EnvironmentSpec(python=str(python)))
    kind = await runtimes.kind(runtime)
    assert kind.python == str(python)
    version, more = "4.1.1", '" style="margin-right: 15px;'
    assert await refusal(runtimes, runtime) == (
        "environment: the job would run with PySpark 4.2.0, and the cluster spark://m:1 runs Spark 4.1.1: the "
        "driver and its executors need the same version. Use an environment with pyspark==4.1.1."
    )
    assert (await refusal(runtimes, Runtime(packages=("a:b:1",)))).startswith("packages: the job would run")
    # It is no page that says so, or there is none.
    version = "<b>none</b>"
    assert await runtimes.kind(runtime) == kind
    await cluster.close()


async def test_without_uv_requirements_are_refused(
    runtimes: Runtimes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.shutil, "which", lambda _name: None)
    sentence = await refusal(runtimes, Runtime(EnvironmentSpec(requirements=("numpy",))))
    assert sentence.startswith("environment.requirements: the server has no uv on its PATH.")


async def test_an_archive_is_unpacked_once_and_never_beside_its_place(
    runtimes: Runtimes, tmp_path: Path
) -> None:
    stand_in(tmp_path / "env" / "bin", answer())
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "env" / "bin", "bin")
        archive.add(tmp_path / "env" / "bin" / "python", "../../../outside")
    spec = EnvironmentSpec(archive="env.tar.gz")
    sentence = await refusal(runtimes, Runtime(spec, artifacts_dir=str(tmp_path)))
    assert sentence.startswith("environment.archive: ") and "outside" in sentence
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "env" / "bin", "bin")
    first = await runtimes.kind(Runtime(spec, artifacts_dir=str(tmp_path)))
    assert first.environment is not None and first.environment.spark_version == "4.2.0"
    assert os.access(first.environment.python, os.X_OK)
    again = await runtimes.kind(Runtime(EnvironmentSpec(archive=str(tmp_path / "env.tar.gz"))))
    assert again == first
    assert "outside" not in [name for _, _, files in os.walk(tmp_path) for name in files]


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root starts processes of another user")
async def test_an_archive_that_only_the_server_may_read_is_unpacked_as_the_user_of_drivers(
    tmp_path: Path,
) -> None:
    stand_in(tmp_path / "env" / "bin", answer())
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "env" / "bin", "bin")
    (tmp_path / "env.tar.gz").chmod(0o600)
    with tempfile.TemporaryDirectory() as open_to_all:
        os.chmod(open_to_all, 0o755)
        java, user = Java("java", "21"), DriverUser.named("nobody")
        runtimes = Runtimes(Path(open_to_all), java, repository="https://repository/", user=user)
        sent = Runtime(EnvironmentSpec(archive="env.tar.gz"), artifacts_dir=str(tmp_path))
        environment = (await runtimes.kind(sent)).environment
        assert environment is not None
        assert os.stat(environment.python).st_uid == user.uid
        # What lies on the host is read with the rights of that user only.
        (tmp_path / "other.tar.gz").write_bytes((tmp_path / "env.tar.gz").read_bytes() + b" ")
        named = Runtime(EnvironmentSpec(archive=str(tmp_path / "other.tar.gz")))
        assert "Permission denied" in await refusal(runtimes, named)


async def test_an_archive_that_is_no_environment(runtimes: Runtimes, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as archive:
        archive.add(__file__, "lib/file")
    runtime = Runtime(EnvironmentSpec(archive="env.tar.gz"), artifacts_dir=str(tmp_path))
    assert "the archive has no bin/python" in await refusal(runtimes, runtime)
    (tmp_path / "env.tar.gz").unlink()
    assert "cannot be read: No such file" in await refusal(runtimes, runtime)
    assert not [path for path in (tmp_path / "cache" / "environments").iterdir() if path.is_dir()]


async def test_what_is_built_is_built_once_and_half_a_build_never_counts(tmp_path: Path) -> None:
    builds = Builds(tmp_path / "builds", None)
    built: list[Path] = []

    def build(place: Path) -> list[str]:
        assert not list(place.iterdir())
        (place / "made").touch()
        if not built:
            built.append(place)
            raise EnvironmentRefused("It cannot be.")
        built.append(place)
        return [str(place / "made")]

    with pytest.raises(EnvironmentRefused):
        await builds.once("key", build)
    assert not (tmp_path / "builds" / "key").exists()
    (tmp_path / "builds" / "key").mkdir()
    (tmp_path / "builds" / "key" / "left by one that was killed").touch()
    found = await asyncio.gather(*(builds.once("key", build) for _ in range(5)))
    assert found == [[str(tmp_path / "builds" / "key" / "made")]] * 5
    assert len(built) == 2
    (tmp_path / "builds" / "key" / "made").unlink()
    await builds.once("key", lambda _place: [])
    assert len(built) == 2


@pytest.mark.parametrize("repository", ["repo1.maven.org", "https://me:s3cret@host/maven/", "ftp://host/"])
def test_a_repository_is_an_address_without_a_password(repository: str) -> None:
    """It is in the cache, which drivers may read."""
    with pytest.raises(
        SettingsError, match="package_repository: should be the address of a Maven repository"
    ):
        load_settings(package_repository=repository)


def test_which_pyspark_requirements_bring() -> None:
    for one in ("pyspark", "pyspark==4.1.1", "PySpark[sql]>=4.1", "pyspark @ https://host/pyspark.tar.gz"):
        assert with_pyspark((one, "numpy"), "4.3.0") == (one, "numpy")
    for one in ("pyspark-client==4.1.1", "pysparkling", "delta-spark"):
        assert with_pyspark((one,), "4.3.0") == ("pyspark==4.3.0", one)


def test_the_last_word_of_a_resolver_is_a_sentence() -> None:
    uv = "  \N{MULTIPLICATION SIGN} No solution found when resolving dependencies:\n  ╰─▶ Because a was not found, b.\n"
    assert told_by(uv) == "No solution found when resolving dependencies: Because a was not found, b."
    spark = (
        ':: problems summary ::\nException in thread "main" java.lang.RuntimeException: [unresolved: a#b;1]\n'
        "\tat org.apache.spark.util.MavenUtils$\n"
    )
    assert told_by(spark) == "[unresolved: a#b;1]."
