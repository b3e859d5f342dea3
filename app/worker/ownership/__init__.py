"""Whose a job is: leases, members, and taking jobs up."""
