"""What a job, its options, its requirements and its rescale records are, and how documents of users are read.

Pure: the driver, the scheduler and the server share it.
"""
