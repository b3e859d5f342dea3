"""What hangs on the control plane and is no part of it: Livy's batches, metrics for Prometheus, traces, samples of
batches. Each uses one or more of three hooks: `app.api.additions` (operations of the REST API, and layers around all of
them), `app.worker.observer` (what happens to jobs) and `app.store.writes.AddRow` (rows of tables of its own). Only
`app.main` imports it (ADR 58).
"""
