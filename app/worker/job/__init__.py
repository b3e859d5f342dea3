"""One job: its mailbox, the steps of its scheduler, their durable storage, and its attempts."""
