"""The phases of a job's life, what each does with each event, and what STREAMING and BATCH jobs share."""
