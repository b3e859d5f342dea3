"""`python -m app.cli` is `slotwise`."""

from app.cli.program import main

main()
