"""Streaming sources whose parallelism can change between two micro-batches, as Spark Python data sources."""
