from __future__ import annotations

from app.cluster.reachability import Reachability


def test_it_says_since_when_and_by_which_error_and_no_password() -> None:
    reachability = Reachability("The Spark master", lambda: 1_700_000_000_000)
    reachability.lost(
        "http://ann:secret@m:8080: Server error '500' for url 'http://ann:secret@m:8080/json/'."
    )
    assert reachability.unreachable == (
        "The Spark master cannot be asked since 2023-11-14 22:13:20 UTC "
        "(http://m:8080: Server error '500' for url 'http://m:8080/json/')."
    )
    assert reachability.found() and not reachability.found()
