"""What runs jobs: driver processes on this host, their environments, slots, and Spark clusters of either kind."""
