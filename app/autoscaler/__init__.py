"""The reference autoscaler: a snapshot of a job's load, and a decision by a policy, with its reason.

The scheduler does not know the autoscaler. `decide` is pure: it has no clock and no I/O. `loop` calls a server
through a protocol and declares bounds.
"""
