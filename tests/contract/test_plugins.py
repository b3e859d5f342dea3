"""The API without the plugins that hang on it."""

from __future__ import annotations

import json

import httpx

from app.api.app import SlotwiseApi, create_app
from app.plugins.assembly import plugins_of
from tests.contract.world import World, bounds


async def test_without_plugins_everything_else_is_there(world: World) -> None:
    job_id = await world.running()
    app = create_app(world.control_plane, info=world.info)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        assert [(await http.get(path)).status_code for path in ("/metrics", "/batches")] == [404, 404]
        path = f"/jobs/{job_id}/resource-requirements"
        wider = bounds(flights=(1, 3), delays=(1, 3), store=(1, 1))
        assert (await http.put(path, json=wider)).status_code == 200
    own, whole = (
        SlotwiseApi("1", with_tokens=False),
        SlotwiseApi("1", plugins_of(traces=False), with_tokens=False),
    )
    more = set(whole.openapi()["paths"]) - set(own.openapi()["paths"])
    assert {path.split("/")[1] for path in more} == {"metrics", "batches"}
    assert "LivyForm" not in json.dumps(own.openapi()) and "LivyForm" in json.dumps(whole.openapi())
