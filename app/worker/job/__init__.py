"""One job in this process: what it is told, its steps, what becomes durable, and its attempts."""
