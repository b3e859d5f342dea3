"""The places where jobs run: driver processes on this host, their environments, slots, and Spark clusters."""
