"""Executors as pods of a Kubernetes namespace."""
