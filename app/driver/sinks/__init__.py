"""Slotwise's own sinks: databases, Python functions, files of BATCH jobs. docs/sinks.md has their guarantees."""
