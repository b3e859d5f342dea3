"""Settings of a Slotwise server: command line over environment (``SLOTWISE_*``) over a TOML file over defaults."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from app.model.addresses import LAST_PORT, is_loopback
from app.model.clustersettings import (
    KUBERNETES,
    NEEDED,
    STANDALONE,
    WHOSE_SLOTS,
    check_driver_host,
    check_kubernetes,
    check_results_apart,
    check_standalone,
    kinds_of,
)
from app.model.javaoptions import java_options_fault
from app.model.jobgraph import MAX_PARALLELISM_LIMIT
from app.model.kubenames import parse_quantity
from app.model.resultsurl import results_root
from app.model.setting_values import fault_of, kind_of, without_blanks
from app.settings_file import SettingsError, read_settings_file

__all__ = ["ENV_PREFIX", "OTHER_VARIABLES", "Settings", "SettingsError", "default_data_dir", "load_settings"]

ENV_PREFIX = "SLOTWISE_"

# Variables of the same prefix that belong to the command line, not to the server. Those of driver processes begin
# with `app.cluster.processes.DRIVER_ENV_PREFIX`.
OTHER_VARIABLES = frozenset({"SLOTWISE_SERVER", "SLOTWISE_TOKEN", "SLOTWISE_CONFIG", "SLOTWISE_DEBUG"})

# Kubernetes knows them as texts such as 500m, and a file may have the number 1 too.
_QUANTITIES = ("cluster_executor_cpu", "cluster_executor_cpu_limit")
_MAY_BE_EMPTY = ("driver_java_options",)
_MOST_CORES = 1024


def default_data_dir() -> Path:
    """Where state lives unless told otherwise: the XDG state directory of the user."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base) / "slotwise"


class Settings(BaseModel):
    """One frozen value, read once at start. Unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Address to listen on. Only loopback without a token file.")
    port: int = Field(8081, ge=0, le=LAST_PORT, description="Port to listen on; 0 takes a free one.")
    data_dir: Path = Field(
        default_factory=default_data_dir, description="Directory for the database, jobs and logs."
    )
    jobs_dir: Path | None = Field(
        None,
        description="Directory for the files of jobs, checkpoints above all; default: jobs in the data directory. With "
        "a cluster all its hosts have to see it under this path.",
    )
    database_url: str | None = Field(None, description="SQLAlchemy URL; default: SQLite in data_dir.")
    results_url: str | None = Field(
        None,
        description="Where results of BATCH jobs lie: an absolute path, or the URI of a directory of a Hadoop file "
        "system; default: among the files of jobs.",
    )
    slots: Annotated[int, Field(ge=1, le=MAX_PARALLELISM_LIMIT)] = Field(
        default_factory=lambda: os.cpu_count() or 1, description="Slots that this host offers."
    )
    cluster_kind: Literal["embedded", "spark-standalone", "kubernetes"] = Field(
        "embedded",
        description="Where jobs run: in processes of this host, in executors of a Spark cluster, or in pods.",
    )
    cluster_master: str | None = Field(
        None,
        description="Address of the Spark master, spark://host:port; several masters: host:port,host:port. Of "
        "Kubernetes: of the API server, k8s://https://host:port.",
    )
    cluster_webui: str | None = Field(
        None,
        description="Web address of the Spark master, http://host:port; of several masters, with commas.",
    )
    cluster_executor_memory_mb: int = Field(
        512, ge=450, description="Heap of each executor. An executor has one core, and is a slot."
    )
    cluster_driver_host: str = Field(
        "127.0.0.1", description="Address of this host under which executors reach the drivers."
    )
    cluster_namespace: str | None = Field(None, description="Kubernetes: the namespace of the pods.")
    cluster_image: str | None = Field(None, description="Kubernetes: the container image of the executors.")
    cluster_slots: int | None = Field(
        None, ge=1, le=MAX_PARALLELISM_LIMIT, description="Kubernetes: the most slots, of all jobs together."
    )
    cluster_service_account: str | None = Field(
        None, description="Kubernetes: the service account of the pods; default: that of the namespace."
    )
    cluster_token_file: Path | None = Field(
        None, description="Kubernetes: file of the bearer token; default: that of this pod's service account."
    )
    cluster_ca_file: Path | None = Field(
        None, description="Kubernetes: certificates of the API server's authority (PEM); default: as above."
    )
    cluster_executor_overhead_mb: int = Field(
        512, ge=384, description="Kubernetes: memory of a pod beside the heap, Python's included."
    )
    cluster_executor_cpu: str = Field(
        "1", description="Kubernetes: cores that a pod asks for, such as 1 or 500m, for one task at a time."
    )
    cluster_executor_cpu_limit: str | None = Field(
        None, description="Kubernetes: the most cores that a pod may use; default: no limit."
    )
    cluster_pod_template: Path | None = Field(
        None, description="Kubernetes: YAML file of what else pods have: volumes, nodes, security."
    )
    cluster_driver_pod: str | None = Field(
        None, description="Kubernetes: the pod that this server runs in, if so. Executors end with it."
    )
    cluster_unschedulable_seconds: float = Field(
        60.0,
        ge=1,
        le=3600,
        description="Kubernetes: for how long a pod may find no node before jobs settle for less.",
    )
    slot_holding_ms: int = Field(
        60_000,
        ge=0,
        le=86_400_000,
        description="For how long a job keeps the slots that it got before shares among jobs are evened out, in "
        "milliseconds.",
    )
    lease_seconds: float = Field(
        15.0,
        ge=2,
        le=3600,
        description="With PostgreSQL: for how long a server that is stopped or cut off keeps its jobs.",
    )
    token_file: Path | None = Field(
        None,
        description="File of who may call, one `name:sha256:<hash of a token>` per line. A change is taken up in a "
        "second.",
    )
    run_drivers_as: str | None = Field(None, description="User that drivers run as, if the server is root.")
    warm_drivers: int = Field(
        1, ge=0, le=64, description="Drivers kept warm, so that a restart takes about a second."
    )
    driver_memory_mb: int = Field(1024, ge=256, description="Heap of each driver's JVM.")
    driver_java_options: str = Field("", description="Options for each driver's JVM, separated by spaces.")
    appcds: bool = Field(
        True, description="Build and use a class data archive, which makes drivers start faster."
    )
    cache_dir: Path | None = Field(
        None,
        description="Where class data archives and the environments and packages of jobs are kept; default: the "
        "user's cache.",
    )
    package_repository: str = Field(
        "https://repo1.maven.org/maven2/",
        description="Maven repository that the packages of jobs come from: an address, or file:///path/.",
    )
    driver_standstill_seconds: float = Field(
        50.0,
        ge=1,
        le=86_400,
        description="A driver that does not ask for its orders for so long is ended, and its job restarted.",
    )
    livy_files_dir: Path | None = Field(
        None, description="Directory with programs that clients of Livy name by path; default: none."
    )
    history_max_age_days: int = Field(90, ge=1, description="Older records, keys and versions are deleted.")
    requests_max_count: int = Field(
        10_000,
        ge=1,
        description="Of each job, so many idempotency keys and versions of its requirements are kept.",
    )
    events_max_count: int = Field(100_000, ge=1, description="The most events that are kept, of all jobs.")
    events_max_age_days: int = Field(7, ge=1, description="Events older than this are deleted.")
    ended_jobs_max_age_days: int = Field(
        90, ge=1, description="Jobs that ended longer ago are forgotten, with their history and files."
    )
    ended_jobs_max_count: int = Field(
        1000, ge=1, description="Beyond this many ended jobs, those that ended first are forgotten."
    )
    metrics_jobs_max: int = Field(
        500, ge=0, le=10_000, description="Of so many jobs GET /metrics has figures of their own."
    )
    traces: bool = Field(False, description="Send traces of rescales by OpenTelemetry (slotwise[otel]).")
    log_format: Literal["auto", "console", "json"] = Field(
        "auto", description="auto: console on a terminal, else JSON."
    )
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    _file: Path | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _of_its_kind(cls, value: object, info: ValidationInfo) -> object:
        """Nothing is taken for what it is not: neither true for 1, nor an empty text for the current directory."""
        name = str(info.field_name)
        if value is None or (name in _MAY_BE_EMPTY and value == ""):
            return value
        if name in _QUANTITIES and type(value) in (int, float):
            value = str(value)
        as_text = name in (info.context or ())
        value = without_blanks(cls.model_fields[name].annotation, value) if as_text else value
        told = str(value) if isinstance(value, Path) else value
        if fault := fault_of(kind_of(cls.model_fields[name].annotation), told, as_text=as_text):
            raise ValueError(f"{name}: {fault}")
        return value

    @field_validator("*")
    @classmethod
    def _absolute(cls, value: object, info: ValidationInfo) -> object:
        try:
            return value.expanduser().absolute() if isinstance(value, Path) else value
        except RuntimeError:
            raise ValueError(
                f"{info.field_name}: there is no such home directory (found {str(value)!r})."
            ) from None

    @field_validator("results_url")
    @classmethod
    def _place_of_results(cls, value: str | None) -> str | None:
        try:
            return None if value is None else results_root(os.path.expanduser(value))
        except ValueError as error:
            raise ValueError(f"results_url: {error}") from None

    @field_validator("package_repository")
    @classmethod
    def _repository(cls, value: str) -> str:
        # Without a password: it would be in the cache, which drivers may read.
        if not re.fullmatch(r"(https?://[^\s<>\"'&@/]+|file://)/[^\s<>\"'&@]*", value):
            raise ValueError(
                "package_repository: should be the address of a Maven repository without a password, such as "
                "https://repo1.maven.org/maven2/ or file:///srv/maven/."
            )
        return value

    @field_validator("driver_java_options")
    @classmethod
    def _splittable(cls, value: str) -> str:
        if fault := java_options_fault(value):
            raise ValueError(f"driver_java_options: {fault}")
        return value

    @field_validator("cluster_driver_host")
    @classmethod
    def _reachable(cls, value: str) -> str:
        check_driver_host(value)
        return value

    @field_validator(*_QUANTITIES)
    @classmethod
    def _cores(cls, value: str | None, info: ValidationInfo) -> str | None:
        try:
            if value is not None and not 0 < parse_quantity(value) <= _MOST_CORES:
                raise ValueError(f"should be more than 0 and at most {_MOST_CORES} (found {value!r}).")
        except ValueError as error:
            raise ValueError(f"{info.field_name}: {error}") from None
        return value

    @model_validator(mode="after")
    def _cluster(self) -> Settings:
        kind = self.cluster_kind
        for name in sorted(self.model_fields_set - {"cluster_kind"}):
            kinds = kinds_of(name)
            if kind not in kinds and getattr(self, name) is not None:
                raise ValueError(
                    f"{name}: is for cluster_kind {' or '.join(kinds)}, and cluster_kind is {kind}."
                )
        if kind in WHOSE_SLOTS and "slots" in self.model_fields_set:
            raise ValueError(f"slots: with cluster_kind {kind} {WHOSE_SLOTS[kind]}.")
        if self.run_drivers_as is not None:
            check_results_apart(self.results_url)
        for name, prefix in NEEDED.get(kind, {}).items():
            value = getattr(self, name)
            if value is None or not str(value).startswith(prefix) or not str(value).strip():
                how = f", and starts with {prefix}" if prefix else ""
                # What stands before an @ may be a password.
                found = "" if "@" in str(value) else f" (found {value!r})"
                raise ValueError(f"{name}: is needed with cluster_kind {kind}{how}{found}.")
        host_given = "cluster_driver_host" in self.model_fields_set
        if kind == STANDALONE:
            assert self.cluster_master and self.cluster_webui
            check_standalone(
                master=self.cluster_master, webui=self.cluster_webui, driver_host_given=host_given
            )
        if kind == KUBERNETES:
            assert self.cluster_master and self.cluster_namespace is not None
            check_kubernetes(
                master=self.cluster_master,
                namespace=self.cluster_namespace,
                names={
                    name: getattr(self, name) for name in ("cluster_service_account", "cluster_driver_pod")
                },
                driver_host_given=host_given,
                cpu=self.cluster_executor_cpu,
                cpu_limit=self.cluster_executor_cpu_limit,
            )
        return self

    @model_validator(mode="after")
    def _loopback_without_tokens(self) -> Settings:
        if self.token_file is None and not is_loopback(self.host):
            raise ValueError(
                f"host: {self.host} is not a loopback address. Without authentication Slotwise listens on loopback "
                "only (127.0.0.1, ::1 or localhost): set token_file to a file of bearer tokens to listen elsewhere."
            )
        return self

    @property
    def place_of_jobs(self) -> Path:
        """The directory of the jobs' files in force."""
        return self.jobs_dir or self.data_dir / "jobs"

    @property
    def private_paths(self) -> tuple[Path, ...]:
        """The server's own files and directories, which jobs have nothing to do with."""
        files = (self.token_file, self.cluster_token_file, self.cluster_ca_file, self._file)
        return (self.data_dir, self.place_of_jobs, *filter(None, files))

    @property
    def url(self) -> str:
        """The SQLAlchemy URL in force."""
        return self.database_url or f"sqlite:///{self.data_dir / 'slotwise.db'}"


def load_settings(config_file: Path | None = None, **overrides: Any) -> Settings:
    """The settings in force. ``overrides`` that are None are not set (they come from the command line).

    Raises:
        SettingsError: an unknown name, a value that is not allowed, or a file that cannot be read.
    """
    values: dict[str, Any] = {}
    errors: list[str] = []
    path = config_file
    if path is None and (named := os.environ.get("SLOTWISE_CONFIG")) is not None:
        if not named.strip():
            raise SettingsError(["SLOTWISE_CONFIG should not be empty: unset it if there is no file."])
        path = Path(named)
    if path is not None:
        values.update(read_settings_file(path))
    known = {ENV_PREFIX + name.upper(): name for name in Settings.model_fields}
    for variable, value in os.environ.items():
        if not variable.startswith(ENV_PREFIX) or variable in OTHER_VARIABLES:
            continue
        if variable in known:
            values[known[variable]] = value
        else:
            # Compared without the prefix, which makes all of them look alike.
            close = _closest(variable.removeprefix(ENV_PREFIX).lower())
            hint = f" Did you mean {ENV_PREFIX}{close.upper()}?" if close else ""
            errors.append(f"Environment variable {variable} is not a setting.{hint}")
    given = {name: value for name, value in overrides.items() if value is not None}
    # Neither has types: what the command line knows as numbers are numbers already.
    as_text = {known[variable] for variable in os.environ if variable in known} | given.keys()
    values.update(given)
    if errors:
        raise SettingsError(errors)
    try:
        settings = Settings.model_validate(values, context=as_text)
    except ValidationError as error:
        raise SettingsError([_sentence(item) for item in error.errors()]) from None
    settings._file = path
    return settings


def _closest(name: str) -> str | None:
    close = difflib.get_close_matches(name, list(Settings.model_fields), n=1)
    return close[0] if close else None


def _sentence(item: Any) -> str:
    place = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        close = _closest(place)
        return f"{place} is not a setting." + (f" Did you mean {close}?" if close else "")
    if item["type"] == "value_error":
        return str(item["ctx"]["error"])
    return f"{place}: {item['msg']} (found {item['input']!r})."
