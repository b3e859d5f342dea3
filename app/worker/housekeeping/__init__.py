"""What is removed, and where files lie."""
