"""What Prometheus is told (docs/monitoring.md): what this server has counted, and what it owns at that moment."""
