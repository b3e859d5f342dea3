"""Parts of the state of a job, as values: of its failures, its slots, what was changed, its versions and so on."""
