from tests.contract.world import *
async def test_it(any_world):
    w=any_world
    import time
    t=time.time()
    j=await w.running()
    print(time.time()-t)
    r=await w.put(j,bounds(flights=(1,4),delays=(1,4),store=(1,1)))
    print(r.status_code,r.text)
    await w.completed(j,2)
    import json
    for p in ("/config","/overview","/jobs","/jobs/overview",f"/jobs/{j}",f"/jobs/{j}/rescales/history",f"/jobs/{j}/explanation","/taskmanagers","/jobmanager/config","/openapi.json","/docs"):
        a=await w.http.get(p); print(p,a.status_code,a.text[:1500]); assert a.status_code==200
