"""The values that describe a job, its options, requirements and rescale records, and the rules of users' documents.

Pure code, shared by the driver, the scheduler and the server.
"""
