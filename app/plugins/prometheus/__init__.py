"""The metrics for Prometheus (docs/monitoring.md): counters of this server, and gauges of the jobs that it owns."""
