"""Valves: nodes in Spark's plan of a streaming query that set the number of tasks of a vertex, between two batches."""
