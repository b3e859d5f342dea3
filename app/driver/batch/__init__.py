"""The execution of a batch job: regions, with durable results between them."""
