from app.driver.rope import Rope

# Before all else, for the imports take a while.
rope = Rope()

from app.driver.process import main  # noqa: E402

raise SystemExit(main(rope))
