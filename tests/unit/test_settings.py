"""Every setting from a file, the environment and the command line, in that order of strength; and what is refused."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from app.cluster.processes import DRIVER_ENV_PREFIX
from app.settings import ENV_PREFIX, OTHER_VARIABLES, Settings, SettingsError, load_settings

# Per setting: values for the file, the environment and the command line. None of them is a default, and all differ
# where the type has so many values.
VALUES: dict[str, tuple[Any, Any, Any]] = {
    "host": ("127.0.0.2", "127.0.0.3", "127.0.0.4"),
    "port": (1001, 1002, 1003),
    "data_dir": ("/file", "/environment", "/command-line"),
    "jobs_dir": ("/file", "/environment", "/command-line"),
    "database_url": ("sqlite:///file", "sqlite:///environment", "sqlite:///command-line"),
    "results_url": ("/file", "hdfs://environment/results", "/command-line"),
    "slots": (1001, 1002, 1003),
    "cluster_kind": ("spark-standalone", "spark-standalone", "spark-standalone"),
    "cluster_master": ("spark://file:1", "spark://environment:1", "spark://command-line:1"),
    "cluster_webui": ("http://file:1", "http://environment:1", "http://command-line:1"),
    "cluster_executor_memory_mb": (1001, 1002, 1003),
    "cluster_driver_host": ("file", "environment", "command-line"),
    "cluster_namespace": ("file", "environment", "command-line"),
    "cluster_image": ("file", "environment", "command-line"),
    "cluster_slots": (1001, 1002, 1003),
    "cluster_service_account": ("file", "environment", "command-line"),
    "cluster_token_file": ("/file", "/environment", "/command-line"),
    "cluster_ca_file": ("/file", "/environment", "/command-line"),
    "cluster_executor_overhead_mb": (1001, 1002, 1003),
    "cluster_executor_cpu": ("101m", "102m", "103m"),
    "cluster_executor_cpu_limit": ("11", "12", "13"),
    "cluster_pod_template": ("/file", "/environment", "/command-line"),
    "cluster_driver_pod": ("file", "environment", "command-line"),
    "cluster_unschedulable_seconds": (20.0, 30.0, 40.0),
    "slot_holding_ms": (2001, 2002, 2003),
    "lease_seconds": (20.0, 30.0, 40.0),
    "token_file": ("/file", "/environment", "/command-line"),
    "run_drivers_as": ("file", "environment", "command-line"),
    "warm_drivers": (11, 12, 13),
    "driver_memory_mb": (1001, 1002, 1003),
    "driver_java_options": ("-Da=file", "-Da=environment", "-Da=command-line"),
    "appcds": (False, True, False),
    "cache_dir": ("/file", "/environment", "/command-line"),
    "package_repository": ("https://file/", "file:///environment/", "http://command-line:8080/maven/"),
    "driver_standstill_seconds": (10.0, 20.0, 40.0),
    "livy_files_dir": ("/file", "/environment", "/command-line"),
    "history_max_age_days": (1001, 1002, 1003),
    "requests_max_count": (1001, 1002, 1003),
    "events_max_count": (1001, 1002, 1003),
    "events_max_age_days": (1001, 1002, 1003),
    "ended_jobs_max_age_days": (1001, 1002, 1003),
    "ended_jobs_max_count": (1001, 1002, 1003),
    "metrics_jobs_max": (1001, 1002, 1003),
    "traces": (True, False, True),
    "log_format": ("json", "console", "json"),
    "log_level": ("debug", "warning", "error"),
}
STANDALONE = {
    "cluster_kind": "spark-standalone",
    "cluster_master": "spark://m:7077",
    "cluster_webui": "http://m:8080",
    "cluster_driver_host": "10.0.0.5",
}
KUBERNETES: dict[str, Any] = {
    "cluster_kind": "kubernetes",
    "cluster_master": "k8s://https://api:6443",
    "cluster_namespace": "jobs",
    "cluster_image": "registry.example/slotwise:1",
    "cluster_slots": 8,
    "cluster_driver_host": "10.0.0.5",
}
OF_BOTH = ("cluster_executor_memory_mb", "cluster_driver_host")
# Per setting with a rule: a value that breaks it, and what the sentence must say beside the name.
WRONG: list[tuple[str, str, str]] = [
    ("host", "0.0.0.0", "not a loopback address"),
    ("port", "65536", "less than or equal to 65535"),
    ("port", "-1", "greater than or equal to 0"),
    ("port", "http", "a whole number (found 'http')"),
    ("port", "", "a whole number"),
    ("port", "1.0", "a whole number"),
    ("data_dir", "~nobody-at-all/x", "no such home directory"),
    ("data_dir", " ", "not be empty"),
    *(
        (name, "", "not be empty")
        for name in ("data_dir", "jobs_dir", "cache_dir", "token_file", "livy_files_dir")
    ),
    *((name, "", "not be empty") for name in ("host", "database_url", "results_url", "cluster_driver_host")),
    ("results_url", "results", "allowed are the URI of a directory of a Hadoop file system"),
    ("results_url", "hdfs://", "an absolute path on this host"),
    ("slots", "0", "greater than or equal to 1"),
    ("slots", "32769", "less than or equal to 32768"),
    ("cluster_kind", "mesos", "'embedded', 'spark-standalone' or 'kubernetes'"),
    ("cluster_master", "http://host:7077", "starts with spark://"),
    ("cluster_webui", "host:8080", "starts with http"),
    ("cluster_webui", "http://m:8080, http://n:8080", "without blanks"),
    ("cluster_webui", "http://m:web", "should be http://host:port"),
    ("cluster_webui", "http://m:8080,http://n:8080", "1 in cluster_master, 2 here"),
    ("cluster_webui", "http://m:65536", "with ports from 1 to 65535"),
    ("cluster_webui", "http://m:8080,", "should be http://host:port"),
    ("cluster_webui", "http://m:8080/?page=1", "should be http://host:port"),
    ("cluster_master", "spark://m", "should be spark://host:port"),
    ("cluster_master", "spark://m:0", "with ports from 1 to 65535"),
    ("cluster_master", "spark://m:7077, n:7077", "without blanks"),
    ("cluster_master", "spark://m:7077,spark://n:7077", "spark://host:port,host:port of several"),
    ("cluster_driver_host", "http://10.0.0.5", "a name or an address of this host"),
    ("cluster_driver_host", "10.0.0.5:4040", "a name or an address of this host"),
    ("cluster_driver_host", "10.0.0.500", "a name or an address of this host"),
    ("cluster_driver_host", "0.0.0.0", "a name or an address of this host"),
    ("cluster_image", " ", "not be empty"),
    ("cluster_executor_memory_mb", "449", "greater than or equal to 450"),
    ("cluster_namespace", "Jobs", "not the name of a namespace"),
    ("cluster_namespace", "a.b", "not the name of a namespace"),
    ("cluster_slots", "0", "greater than or equal to 1"),
    ("cluster_service_account", "a b", "not a name of Kubernetes"),
    ("cluster_executor_overhead_mb", "383", "greater than or equal to 384"),
    ("cluster_executor_cpu", "one", "not a quantity of Kubernetes"),
    ("cluster_executor_cpu", "0", "more than 0 and at most 1024"),
    ("cluster_executor_cpu_limit", "900m", "is less than cluster_executor_cpu, 1"),
    ("cluster_driver_pod", "Pod", "not a name of Kubernetes"),
    ("cluster_unschedulable_seconds", "nan", "should be a number"),
    ("lease_seconds", "nan", "should be a number"),
    ("lease_seconds", "inf", "should be a number"),
    ("lease_seconds", "1", "greater than or equal to 2"),
    ("cluster_unschedulable_seconds", "0.5", "greater than or equal to 1"),
    ("slot_holding_ms", "-1", "greater than or equal to 0"),
    ("run_drivers_as", "", "should not be empty"),
    ("warm_drivers", "-1", "greater than or equal to 0"),
    ("warm_drivers", "65", "less than or equal to 64"),
    ("driver_memory_mb", "255", "greater than or equal to 256"),
    ("appcds", "perhaps", "should be true or false"),
    ("history_max_age_days", "0", "greater than or equal to 1"),
    ("requests_max_count", "0", "greater than or equal to 1"),
    ("ended_jobs_max_age_days", "0", "greater than or equal to 1"),
    ("ended_jobs_max_count", "0", "greater than or equal to 1"),
    ("traces", "2", "should be true or false"),
    ("log_format", "xml", "'auto', 'console' or 'json'"),
    ("log_level", "loud", "'debug', 'info', 'warning' or 'error'"),
]


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(ENV_PREFIX):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def a_cluster_for_its_settings(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, no_settings_of_the_machine: None
) -> None:
    """None of them stands alone."""
    name = getattr(request.node, "callspec", None) and request.node.callspec.params.get("name", "")
    if str(name).startswith("cluster_"):
        companions = STANDALONE if name in {*STANDALONE, *OF_BOTH} else KUBERNETES
        for companion, value in companions.items():
            if companion != name:
                monkeypatch.setenv(ENV_PREFIX + companion.upper(), str(value))


def toml(path: Path, name: str, value: Any) -> Path:
    path.write_text(f"{name} = {str(value).lower() if isinstance(value, bool) else repr(value)}\n")
    return path


def refused(*arguments: Any, **overrides: Any) -> list[str]:
    with pytest.raises(SettingsError) as error:
        load_settings(*arguments, **overrides)
    return error.value.errors


def test_the_values_below_are_of_every_setting_and_no_defaults() -> None:
    assert VALUES.keys() == Settings.model_fields.keys()
    plain = load_settings()
    for name, (in_file, _, given) in VALUES.items():
        assert str(getattr(plain, name)) not in (str(in_file), str(given)), name


@pytest.mark.parametrize("name", Settings.model_fields)
def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_file, in_environment, given = VALUES[name]
    file = toml(tmp_path / "slotwise.toml", name, in_file)
    found = [getattr(load_settings(file), name)]
    monkeypatch.setenv(ENV_PREFIX + name.upper(), str(in_environment).lower())
    found.append(getattr(load_settings(file), name))
    found.append(getattr(load_settings(file, **{name: given}), name))
    found.append(getattr(load_settings(file, **{name: None}), name))
    expected = [in_file, str(in_environment).lower(), given, str(in_environment).lower()]
    assert [str(value).lower() for value in found] == [str(value).lower() for value in expected]
    assert {type(value) for value in found} == {type(found[0])}


def test_the_class_data_archive_is_switched_off_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOTWISE_APPCDS", "false")
    assert load_settings().appcds is False


def test_the_file_may_be_named_by_the_environment_and_the_command_line_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOTWISE_CONFIG", str(toml(tmp_path / "a.toml", "slots", 5)))
    assert load_settings().slots == 5
    settings = load_settings(toml(tmp_path / "b.toml", "slots", 6))
    assert (settings.slots, settings.private_paths[-1]) == (6, tmp_path / "b.toml")


@pytest.mark.parametrize("name", sorted({*OTHER_VARIABLES, DRIVER_ENV_PREFIX + "JAVA"} - {"SLOTWISE_CONFIG"}))
def test_variables_of_the_command_line_and_of_drivers_do_not_concern_the_server(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = load_settings()
    monkeypatch.setenv(name, "1")
    assert load_settings() == plain


def test_no_setting_has_the_name_of_another_variable() -> None:
    names = {ENV_PREFIX + name.upper() for name in Settings.model_fields}
    assert not names & OTHER_VARIABLES
    assert not any(name.startswith(DRIVER_ENV_PREFIX) for name in names)


def test_an_unknown_name_is_refused_wherever_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refused(toml(tmp_path / "a.toml", "slotz", 5)) == ["slotz is not a setting. Did you mean slots?"]
    assert refused(quite_another=5) == ["quite_another is not a setting."]
    monkeypatch.setenv("SLOTWISE_SLOTZ", "5")
    monkeypatch.setenv("SLOTWISE_QUITE_ANOTHER", "5")
    assert sorted(refused()) == [
        "Environment variable SLOTWISE_QUITE_ANOTHER is not a setting.",
        "Environment variable SLOTWISE_SLOTZ is not a setting. Did you mean SLOTWISE_SLOTS?",
    ]


@pytest.mark.parametrize(("name", "value", "words"), WRONG)
def test_a_value_that_is_not_allowed_is_refused_by_name(
    name: str, value: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file has numbers, and not texts of numbers.
    in_file: Any = value
    if type(VALUES[name][0]) in (int, float):
        with contextlib.suppress(ValueError):
            in_file = float(value) if "." in value else int(value)
    for sentence in (*refused(toml(tmp_path / "a.toml", name, in_file)), *refused(**{name: value})):
        assert sentence.startswith(f"{name}: ") and words in sentence
    monkeypatch.setenv(ENV_PREFIX + name.upper(), value)
    (sentence,) = refused()
    assert sentence.startswith(f"{name}: ") and words in sentence
    assert "Traceback" not in sentence


def test_every_wrong_value_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOTWISE_SLOTS", "none")
    assert [sentence.partition(":")[0] for sentence in refused(port=-1)] == ["port", "slots"]


def test_a_host_beyond_loopback_needs_tokens() -> None:
    assert load_settings(host="0.0.0.0", token_file="/tokens").host == "0.0.0.0"
    for host in ("localhost", "::1", "127.9.9.9"):
        assert load_settings(host=host).host == host
    for host in ("example.org", "::"):
        (sentence,) = refused(host=host)
        assert "set token_file" in sentence


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file"),
        (b"slots = ", "is not valid TOML"),
        (b"\xff", "is not valid TOML"),
    ],
)
def test_a_file_that_is_missing_or_damaged_is_refused(
    content: bytes | None, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "slotwise.toml"
    if content is not None:
        file.write_bytes(content)
    (sentence,) = refused(file)
    assert str(file) in sentence and words in sentence


def test_paths_are_absolute_and_may_begin_with_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    settings = load_settings(data_dir="~/data", cache_dir="cache", results_url="~/results")
    assert settings.results_url == str(tmp_path / "results")
    assert (settings.data_dir, settings.cache_dir) == (tmp_path / "data", tmp_path / "cache")
    assert settings.url == f"sqlite:///{tmp_path}/data/slotwise.db"
    assert load_settings(database_url="postgresql://db/x").url == "postgresql://db/x"


def test_the_table_of_the_cluster_holds_its_settings_without_their_prefix(tmp_path: Path) -> None:
    file = tmp_path / "slotwise.toml"
    file.write_text(
        '[cluster]\nkind = "spark-standalone"\nmaster = "spark://m:7077"\nwebui = "http://m:8080"\n'
        'driver_host = "10.0.0.5"\n'
    )
    assert load_settings(file).model_dump() == load_settings(**STANDALONE).model_dump()
    file.write_text('[cluster]\nmastre = "spark://m:7077"\n')
    assert refused(file) == ["cluster_mastre is not a setting. Did you mean cluster_master?"]


def test_settings_of_a_cluster_that_contradict_each_other_are_refused() -> None:
    assert "cluster_master: is for cluster_kind spark-standalone" in refused(cluster_master="spark://m:1")[0]
    assert "cluster_webui: is needed" in refused(**{**STANDALONE, "cluster_webui": None})[0]
    assert "slots: with cluster_kind spark-standalone" in refused(**STANDALONE, slots=4)[0]


@pytest.mark.parametrize("master", ["spark://m:7077", "spark://127.0.0.1:7077,m:7077", "spark://10.0.0.1:1"])
def test_a_spark_master_beyond_loopback_needs_an_address_for_the_drivers(master: str) -> None:
    given = {**STANDALONE, "cluster_master": master, "cluster_driver_host": None}
    given["cluster_webui"] = ",".join(["http://m:8080"] * (1 + master.count(",")))
    (sentence,) = refused(**given)
    assert sentence.startswith("cluster_driver_host: is needed with a Spark master that is not on loopback")
    # Who says so may have all workers here.
    assert load_settings(**{**given, "cluster_driver_host": "127.0.0.1"}).cluster_driver_host == "127.0.0.1"


@pytest.mark.parametrize(
    "master", ["spark://127.0.0.1:1", "spark://localhost:1,localhost:2", "spark://[::1]:1"]
)
def test_a_spark_master_on_loopback_needs_none(master: str) -> None:
    given = {**STANDALONE, "cluster_master": master, "cluster_driver_host": None}
    given["cluster_webui"] = ",".join(["http://m:8080"] * (1 + master.count(",")))
    assert load_settings(**given).cluster_driver_host == "127.0.0.1"


@pytest.mark.parametrize("name", ["cluster_master", "cluster_webui"])
@pytest.mark.parametrize(
    "value", ["http://me:s3cret@m:8080", "spark://me:s3cret@m:7077", "ftp://me:s3cret@m"]
)
def test_what_may_be_a_password_in_an_address_is_not_shown(name: str, value: str) -> None:
    (sentence,) = refused(**{**STANDALONE, name: value})
    assert sentence.startswith(f"{name}: ") and "s3cret" not in sentence


def test_what_is_given_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "slotwise.toml"
    file.write_text(
        'cluster_master = "spark://a:1"\n[cluster]\nmaster = "spark://b:1"\nwebui = "http://b:2"\n'
    )
    with pytest.raises(SettingsError) as error:
        load_settings(file)
    assert error.value.errors == ["cluster_master: is given twice, in the table [cluster] too."]


@pytest.mark.parametrize("name", ["data_dir", "jobs_dir", "cache_dir"])
def test_an_empty_directory_is_not_the_current_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"SLOTWISE_{name.upper()}", "")
    with pytest.raises(SettingsError, match=f"{name}: .*should not be empty"):
        load_settings()


def test_cores_of_a_pod_may_be_numbers(tmp_path: Path) -> None:
    file = tmp_path / "slotwise.toml"
    file.write_text("[cluster]\nexecutor_cpu = 1\nexecutor_cpu_limit = 1.5\n")
    settings = load_settings(file, **KUBERNETES)
    assert (settings.cluster_executor_cpu, settings.cluster_executor_cpu_limit) == ("1", "1.5")
    file.write_text("[cluster]\nexecutor_cpu = true\n")
    assert refused(file, **KUBERNETES)[0].startswith("cluster_executor_cpu: ")


def test_settings_of_kubernetes_that_are_missing_or_contradict_each_other_are_refused() -> None:
    assert load_settings(**KUBERNETES).cluster_slots == 8
    for name in KUBERNETES.keys() - {"cluster_kind"}:
        (sentence,) = refused(**{**KUBERNETES, name: None})
        assert sentence.startswith(f"{name}: is needed with cluster_kind kubernetes"), sentence
    assert "cluster_slots says how many" in refused(**KUBERNETES, slots=4)[0]
    assert (
        "cluster_webui: is for cluster_kind spark-standalone, and"
        in refused(**KUBERNETES, cluster_webui="http://x")[0]
    )
    assert "cluster_image: is for cluster_kind kubernetes, and" in refused(**STANDALONE, cluster_image="x")[0]


NO_API_SERVERS = (
    "k8s://ftp://api", "k8s://", "k8s://https://api:port", "k8s://https://me:secret@api", "k8s://api:99999", "k8s://api:0",
)  # fmt: skip


@pytest.mark.parametrize("master", NO_API_SERVERS)
def test_another_address_than_of_an_api_server_is_refused(master: str) -> None:
    (sentence,) = refused(**{**KUBERNETES, "cluster_master": master})
    assert "is not of the form k8s://https://host:port" in sentence and "secret" not in sentence
