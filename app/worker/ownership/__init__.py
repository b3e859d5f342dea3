"""The owners of jobs: leases, members, and take-overs."""
