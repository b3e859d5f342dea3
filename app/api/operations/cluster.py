"""The server, its TaskManagers, its health, and what drivers call."""

from __future__ import annotations

from typing import Final

from app.api.documentation import Doc
from app.api.examples import cluster as cluster_examples
from app.api.handlers import cluster, drivers
from app.api.operations.common import JOB_PATH
from app.api.routing import Access, Operation
from app.api.schema import cluster as cluster_schema

_TAG = "cluster"
_SETTINGS_EXAMPLE = [{"key": "port", "value": "8081"}]
_MANAGERS = {"taskmanagers": [cluster_examples.TASK_MANAGER]}
CLUSTER_OPERATIONS: Final[list[Operation]] = [
    Operation(
        "GET",
        "/config",
        cluster.config,
        Doc(
            "getConfig",
            _TAG,
            "What Flink's dashboard asks first",
            cluster_schema.DashboardConfig,
            cluster_examples.CONFIG,
        ),
    ),
    Operation(
        "GET",
        "/overview",
        cluster.overview,
        Doc(
            "getOverview",
            _TAG,
            "Slots and jobs in numbers",
            cluster_schema.ClusterOverview,
            cluster_examples.CLUSTER,
        ),
    ),
    Operation(
        "GET",
        "/jobmanager/config",
        cluster.configuration,
        Doc(
            "getServerSettings",
            _TAG,
            "The settings of this server",
            cluster_schema.ConfigurationEntry,
            _SETTINGS_EXAMPLE,
            is_list=True,
        ),
    ),
    Operation(
        "GET",
        JOB_PATH + "/jobmanager/config",
        cluster.job_configuration,
        Doc(
            "getJobServerSettings",
            _TAG,
            "The settings of the server that runs a job",
            cluster_schema.ConfigurationEntry,
            _SETTINGS_EXAMPLE,
            is_list=True,
        ),
    ),
    Operation(
        "GET",
        "/taskmanagers",
        cluster.task_managers,
        Doc("listTaskManagers", _TAG, "What offers slots", cluster_schema.TaskManagers, _MANAGERS),
    ),
    Operation(
        "GET",
        "/taskmanagers/{taskmanagerid}",
        cluster.task_manager,
        Doc(
            "getTaskManager",
            _TAG,
            "One TaskManager with its slots",
            cluster_schema.TaskManagerDetails,
            cluster_examples.TASK_MANAGER_DETAILS,
        ),
    ),
    Operation(
        "GET",
        "/cluster/members",
        cluster.members,
        Doc(
            "listMembers",
            _TAG,
            "The servers that share the jobs, and how many jobs each owns",
            cluster_schema.Members,
            {"shared": True, "alone": None, "members": [cluster_examples.MEMBER]},
        ),
    ),
    Operation(
        "GET",
        "/health/live",
        cluster.live,
        Doc("getLive", "health", "Whether the server runs", cluster_schema.Live, {"status": "live"}),
        Access.PUBLIC,
    ),
    Operation(
        "GET",
        "/health/ready",
        cluster.ready,
        Doc(
            "getReady",
            "health",
            "Whether the server can serve",
            cluster_schema.Ready,
            {"status": "ready", "warnings": []},
            errors={503: "The database cannot be read, or the last write failed."},
        ),
        Access.PUBLIC,
    ),
]


_BASE = "/internal/v1/jobs/{jobid}/attempts/{attempt}"
DRIVER_OPERATIONS: Final[list[Operation]] = [
    Operation("POST", _BASE + "/register", drivers.register, access=Access.DRIVER),
    Operation("GET", _BASE + "/orders", drivers.orders, access=Access.DRIVER),
    Operation("POST", _BASE + "/reports", drivers.reports, access=Access.DRIVER),
]
