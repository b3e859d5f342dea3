"""The scheduler of batch jobs: pipelined regions, their failover, and the parallelism decider."""
