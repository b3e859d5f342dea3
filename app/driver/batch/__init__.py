"""What runs a batch job: its regions one by one, with durable results between them."""
