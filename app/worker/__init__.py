"""The worker of a job: takes events in, steps the scheduler, performs the effects."""
