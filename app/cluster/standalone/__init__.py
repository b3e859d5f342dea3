"""A Spark standalone cluster: the workers on its master's web page, and a cluster for development."""
