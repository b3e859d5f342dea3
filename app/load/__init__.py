"""The load of a job: reports of its drivers on batches and executors, figures of the last minute, sentences on them.

It is not durable, and decides nothing (docs/load.md).
"""
