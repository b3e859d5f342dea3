"""What clients ask for: submissions, versions, requirements, shares, stops; and what they are told."""
