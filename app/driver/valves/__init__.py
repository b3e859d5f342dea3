"""Valves: nodes in Spark's own plan of a streaming query whose number of tasks can be set between two batches."""
