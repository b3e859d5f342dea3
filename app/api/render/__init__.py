"""Conversion of the control plane's values to the JSON of the REST contract. Pure functions; time is an argument."""
