"""The reference autoscaler: what it sees of a job, what it decides by a policy, and why.

The scheduler knows nothing of it. `decide` is pure: it reads no clock and asks nobody. `loop` asks a server and
declares bounds, through a protocol.
"""
