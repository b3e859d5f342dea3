"""A Spark standalone cluster: what its master says of workers, and daemons of it for development."""
