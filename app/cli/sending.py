"""How a document and its files are sent to the server."""

from __future__ import annotations

import json

from app.cli.client import Client, Json
from app.cli.programs import PLANNING_ANSWER_S, Submitted


def post(client: Client, submitted: Submitted, *, dry_run: bool = False) -> Json:
    """Submit it, or ask what would become of it; the server's answer."""
    return send_to(client, "POST", "/jobs", submitted, dry_run=dry_run)


def send_to(client: Client, method: str, path: str, submitted: Submitted, *, dry_run: bool = False) -> Json:
    """Send it to ``path``; the server's answer."""
    params = {"dryRun": "true"} if dry_run else None
    patience_s = PLANNING_ANSWER_S if submitted.preparation else None
    if not submitted.artifacts:
        return client.request(method, path, params=params, body=submitted.document, answer_s=patience_s)[0]
    graph = json.dumps(submitted.document, allow_nan=False).encode()
    files = [("graph", ("graph.json", graph, "application/json"))]
    files += [
        ("files", (name, content, "application/octet-stream"))
        for name, content in submitted.artifacts.items()
    ]
    return client.request(method, path, params=params, files=files, answer_s=patience_s)[0]
