"""The control plane: it gives the events of each job to the scheduler, stores the result and performs the effects."""
