"""Conversion of the control plane's values to the JSON of the REST contract. Pure functions; with the time as argument."""
