"""Names, quantities and addresses of Kubernetes; and what a job may not set on its cluster."""

from __future__ import annotations

from fractions import Fraction

import pytest

from app.model.kubenames import api_server, is_label, is_subdomain, parse_quantity
from app.model.ownsettings import refused_on_cluster


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("0.5", Fraction(1, 2)),
        ("500m", Fraction(1, 2)),
        ("1.5Gi", 3 * 2**29),
        ("12Ki", 12 * 1024),
        ("2k", 2000),
        ("3M", 3_000_000),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("5e-1", Fraction(1, 2)),
        ("-1", -1),
        ("+7u", Fraction(7, 10**6)),
        ("250n", Fraction(250, 10**9)),
        (".5", Fraction(1, 2)),
        ("1.", 1),
    ],
)
def test_a_quantity_is_read_exactly(text: str, value: Fraction | int) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text", ["", "m", "1 Gi", "1gi", "1mi", "0x1", "1e", "1e1000", "--1", "NaN", "\N{FULLWIDTH DIGIT ONE}x"]
)
def test_other_texts_are_no_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity of Kubernetes"):
        parse_quantity(text)


def test_names() -> None:
    assert all(map(is_label, ("a", "a-1", "a" * 63)))
    assert not any(map(is_label, ("", "-a", "a-", "A", "a.b", "a" * 64, "a\n")))
    assert all(map(is_subdomain, ("a", "a.b-c.1")))
    assert not any(map(is_subdomain, ("", "a..b", ".a", "a_b", "a" * 254)))


@pytest.mark.parametrize(
    ("master", "server"),
    [
        ("k8s://https://api:6443", "https://api:6443"),
        ("k8s://api:6443/", "https://api:6443"),
        ("k8s://http://127.0.0.1:8001", "http://127.0.0.1:8001"),
        ("k8s://https://[::1]:6443", "https://[::1]:6443"),
        ("k8s://https://gateway/k8s/clusters/c-1", "https://gateway/k8s/clusters/c-1"),
    ],
)
def test_the_address_of_the_api_server(master: str, server: str) -> None:
    assert api_server(master) == server


@pytest.mark.parametrize(
    "key",
    [
        "spark.kubernetes.executor.request.cores",
        "spark.kubernetes.container.image",
        "spark.kubernetes.executor.volumes.hostPath.root.mount.path",
        "spark.kubernetes.executor.label.slotwise/job",
        "spark.executor.memoryOverhead",
        "spark.memory.offHeap.size",
        "spark.authenticate.secret",
        "spark.dynamicAllocation.executorIdleTimeout",
        "spark.executor.cores",
    ],
)
def test_a_job_may_not_change_its_pods(key: str) -> None:
    said = refused_on_cluster([key, "spark.sql.shuffle.partitions"], "k8s://https://api")
    assert said is not None
    assert said.startswith(f"The config of the job may not change {key} on this cluster: each slot is a pod")
    if key.startswith(("spark.kubernetes", "spark.memory", "spark.authenticate", "spark.executor.memoryO")):
        assert refused_on_cluster([key], "spark://host:7077") is None


def test_a_job_may_set_what_no_slot_rests_on() -> None:
    for master in ("k8s://https://api", "spark://host:7077"):
        assert (
            refused_on_cluster(["spark.sql.shuffle.partitions", "spark.executor.extraJavaOptions"], master)
            is None
        )
    standalone = refused_on_cluster(["spark.cores.max", "spark.executor.memory"], "spark://host:7077")
    assert standalone is not None
    assert (
        "may not change spark.cores.max, spark.executor.memory on this cluster: each slot is an executor"
        in standalone
    )
