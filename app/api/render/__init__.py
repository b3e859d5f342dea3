"""Values of the control plane as the JSON of the REST contract. Pure functions; the caller gives the time."""
