"""The database: jobs, states, requirements, rescale records, attempts, events, and the owners of jobs.

Start with `store.Store` and `writes.UnitOfWork`.
"""
