"""A loop of your own around the decision of `slotwise autoscale`: look, decide, declare.

python examples/autoscaler/loop.py http://127.0.0.1:8081 JOB_ID examples/autoscaler/office_hours.yaml
"""

import sys
import time
from pathlib import Path

import httpx
import yaml

from app.autoscaler.decide import decide
from app.autoscaler.loop import ENDED, declared
from app.autoscaler.policy import Policy, read_policy
from app.autoscaler.reading import look
from app.autoscaler.seen import NO_MEMORY, Action, Memory


def turn(http: httpx.Client, job_id: str, policy: Policy, memory: Memory) -> Memory | None:
    """One look, and what follows from it. What it returns is given to the next; None once the job has ended."""

    def get(path: str) -> httpx.Response:
        return http.get(path).raise_for_status()

    details = get(f"/jobs/{job_id}").json()
    if details["state"] in ENDED:
        return None
    bounds = get(f"/jobs/{job_id}/resource-requirements")
    seen = look(
        lambda path: get(path).json(),
        details,
        bounds.json(),
        window_ms=policy.window_ms,
        memory=memory,
    )
    decision = decide(seen, policy)
    # Here is the place for rules of your own, such as one more task before a sale begins.
    print(f"{decision.action}: {decision.reason}", flush=True)
    if decision.action is Action.SCALE:
        answer = http.put(
            f"/jobs/{job_id}/resource-requirements",
            json=declared(bounds.json(), decision.upper),
            headers={"If-Match": bounds.headers["ETag"], "X-Slotwise-Reason": decision.reason},
        )
        # 412: somebody else declared bounds meanwhile. The next look sees them.
        if answer.status_code != 412:
            answer.raise_for_status()
    return decision.memory


def main(server: str, job_id: str, policy_file: str) -> None:
    policy = read_policy(yaml.safe_load(Path(policy_file).read_text(encoding="utf-8")))
    memory: Memory | None = NO_MEMORY
    with httpx.Client(base_url=server, timeout=30) as http:
        while memory is not None:
            try:
                memory = turn(http, job_id, policy, memory)
            except httpx.HTTPError as error:
                print(f"{error}; trying again.", file=sys.stderr, flush=True)
            time.sleep(policy.interval_ms / 1000)


if __name__ == "__main__":
    main(*sys.argv[1:])
