"""How long a job is without an owner when the server that owns it is killed with -9, and what its batches notice of it.

    python benchmarks/take_over.py [--rounds 20] [--lease-seconds 15]

Two servers share a PostgreSQL database and a data directory; one real streaming job with a batch each 250 ms runs in a
process of its own. Each round kills the owner and sends PUTs to the other server until one is answered 200: that is the
time of a take-over, as a client sees it. Then a new server takes the place of the dead one. The gaps between commits
of micro-batches around each kill are compared with those of the time in between.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.acceptance.deployment import wait_for
from tests.acceptance.members import Job, Server, Servers, servers_on
from tests.databases import PostgresServer

_SETTLE_S = 3.0
_AFTER_S = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20, help="take-overs")
    parser.add_argument("--lease-seconds", type=float, default=15.0, help="lease_seconds of the servers")
    options = parser.parse_args()
    postgres = PostgresServer.start(durable=True)
    try:
        with tempfile.TemporaryDirectory(prefix="slotwise-take-over-") as directory:
            dsn = postgres.create_database()
            with servers_on(Path(directory), dsn, lease_seconds=options.lease_seconds) as servers:
                measure(servers, options.rounds)
    finally:
        postgres.stop()
    return 0


def measure(servers: Servers, rounds: int) -> None:
    living = [servers.start(), servers.start()]
    job = servers.submit(living[0])
    pid = job.show(living[0])["driverPid"]
    time.sleep(_SETTLE_S)
    times, windows = [], []
    # Spark keeps the newest hundred or so.
    commits = job.commits()
    for number in range(1, rounds + 1):
        owner = settled_owner(job, living)
        (other,) = (server for server in living if server is not owner)
        killed_s = time.time()
        owner.kill()
        took_s = job.put_until_answered(other, 2 + 2 * (number % 2))
        time.sleep(_AFTER_S)
        times.append(took_s)
        windows.append((killed_s, time.time()))
        print(f"round {number:2}: {took_s * 1000:6.0f} ms", flush=True)
        assert job.show(other)["driverPid"] == pid, "the driver is another one"
        commits |= job.commits()
        living = [other, servers.start()]
        commits |= job.commits()
    report(sorted(commits.values()), times, windows)


def settled_owner(job: Job, living: list[Server]) -> Server:
    """The owner, once it has been the same for a while: a job may be handed over to a server that has joined."""
    held: list[tuple[float, tuple[str, int]]] = []

    def settled() -> Server | None:
        held.append((time.monotonic(), job.lease()))
        same = [at for at, lease in held if lease == held[-1][1]]
        owners = [server for server in living if job.is_of(server)]
        return owners[0] if owners and same[-1] - same[0] >= _SETTLE_S else None

    found: Server = wait_for("one server owns the job", settled)
    return found


def report(commits: list[float], times: list[float], windows: list[tuple[float, float]]) -> None:
    gaps = [(before, after - before) for before, after in itertools.pairwise(commits)]
    around = [max(gap for at, gap in gaps if since - 1 <= at <= until) for since, until in windows]
    steady = [
        gap
        for at, gap in gaps
        if not any(since - 1 <= at <= until for since, until in windows) and at > commits[20]
    ]
    usual_s = statistics.median(steady)
    p95_s = statistics.quantiles(times, n=20, method="inclusive")[18]
    for line in (
        f"take-overs: {len(times)}, from kill -9 to an answered PUT: p50 {_ms(statistics.median(times))}, "
        f"p95 {_ms(p95_s)}, longest {_ms(max(times))}",
        f"batches: one each {_ms(usual_s)} (median), longest time between two apart from take-overs {_ms(max(steady))}",
        f"around take-overs: median of the longest {_ms(statistics.median(around))}, longest {_ms(max(around))}, "
        f"which is {max(around) / usual_s:.1f} of the usual interval",
        "the driver process was the same throughout",
    ):
        print(line)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


if __name__ == "__main__":
    sys.exit(main())
