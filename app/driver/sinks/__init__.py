"""Sinks: what a query does with the rows of a micro-batch. One module per kind."""
