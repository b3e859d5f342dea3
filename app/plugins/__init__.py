"""What hangs on the control plane and is no part of it: Livy's batches, metrics for Prometheus, traces, samples of
batches. Each is a `app.api.plugin.Plugin`, and may have rows of its own (`app.store.writes.AddRow`). Only `app.main`
imports it (ADR 58).
"""
