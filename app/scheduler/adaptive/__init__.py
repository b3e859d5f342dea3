"""The phases of a job, the handlers of their events, and the code that STREAMING and BATCH jobs share."""
