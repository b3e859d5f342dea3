"""An autoscaler of your own: the loop of `slotwise autoscale`, with a client and a rule of your own.

python examples/autoscaler/loop.py http://127.0.0.1:8081 JOB_ID examples/autoscaler/office_hours.yaml
"""

import sys
import time
from dataclasses import replace
from pathlib import Path

import httpx

from app.api.yamltext import decode_yaml_strict
from app.autoscaler.decide import decide
from app.autoscaler.loop import Loop, Refusal
from app.autoscaler.policy import Policy
from app.autoscaler.seen import Action, Decision, Snapshot
from app.cli.autoscale_policy import read_policy


class Http:
    """What the loop needs of a server."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def get(self, path: str) -> tuple[object, str | None]:
        answer = self._request("GET", path)
        return answer.json(), answer.headers.get("ETag")

    def put(self, path: str, body: object, *, if_match: str | None, reason: str) -> None:
        # Names and reasons may be in any language.
        headers = {"If-Match": (if_match or "*").encode(), "X-Slotwise-Reason": reason.encode()}
        self._request("PUT", path, json=body, headers=headers)

    def _request(self, method: str, path: str, **rest: object) -> httpx.Response:
        try:
            answer = self.http.request(method, path, **rest)
        except httpx.RequestError as error:
            raise Refusal(None, str(error)) from error
        if answer.is_error:
            raise Refusal(answer.status_code, answer.text)
        return answer


def never_by_one(seen: Snapshot, policy: Policy) -> Decision:
    """A rule of your own: changes of a single task are not worth a rescale."""
    decision = decide(seen, policy)
    before = {each.id: each.upper for each in seen.vertices}
    if decision.action is Action.SCALE and all(
        abs(upper - before[vertex_id]) == 1 for vertex_id, upper in decision.upper.items()
    ):
        return replace(
            decision, action=Action.NONE, upper={}, reason=f"{decision.reason} One task is too few."
        )
    return decision


def main(server: str, job_id: str, policy_file: str) -> None:
    policy = read_policy(decode_yaml_strict(Path(policy_file).read_bytes()))
    with httpx.Client(base_url=server, timeout=30) as http:
        loop = Loop(Http(http), job_id, policy, never_by_one)
        while (turn := loop.turn()).ended is None:
            print(turn.trouble or turn.decision.reason, flush=True)
            time.sleep(turn.pause_ms / 1000)


if __name__ == "__main__":
    main(*sys.argv[1:])
