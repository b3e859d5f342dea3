"""Input of the programs in tests/programs/public: as `program_data`, in the shapes that such programs expect."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.acceptance.program_data import (
    LAST_S,
    PAGES,
    ROWS,
    START,
    VISIT_S,
    VISITS,
    Row,
    Stream,
    event,
    events,
)

LAST_AT = START + timedelta(seconds=LAST_S)
USERS_PER_VISIT, CUSTOMERS, CAMPAIGNS = 4, 300, 6


def _clicks(number: int) -> list[Row]:
    """Users who are there for twenty seconds and come again a minute after they began; so no gap is between."""
    found = []
    for one in events(number):
        second = (one["at"] - START).total_seconds()
        user = f"user-{int(second // VISIT_S) % USERS_PER_VISIT}-{one['id'] % VISITS}"
        found.append(_click(user, one["page"], one["amount"], one["at"]))
    return found


def _click(user: str, page: str, amount: int, at: datetime) -> Row:
    return {"user_id": user, "page": page, "amount": amount, "event_time": at}


def _impressions(number: int) -> list[Row]:
    return [
        _impression(str(one["id"]), f"campaign-{one['id'] % CAMPAIGNS}", one["at"])
        for one in (event(number, index) for index in range(ROWS))
    ]


def _impression(identity: str, campaign: str, at: datetime) -> Row:
    return {"ImpressionID": identity, "CreatedTime": f"{at:%Y-%m-%d %H:%M:%S}", "Campaigner": campaign}


def _ad_clicks(number: int) -> list[Row]:
    """Some impressions of this file are clicked within four seconds, some of those twice."""
    found = []
    for one in (event(number, index) for index in range(ROWS)):
        for again in range((0, 0, 1, 0, 2)[one["id"] % 5]):
            at = one["at"] + timedelta(milliseconds=200 + 1900 * again + 31 * (one["id"] % 60))
            found.append({"ImpressionID": str(one["id"]), "CreatedTime": f"{at:%Y-%m-%d %H:%M:%S}"})
    return found


def _changes(number: int) -> list[str]:
    """Events of a database's log, in some other order within a file, and with tombstones."""
    lines = []
    for index in range(ROWS):
        dice, lsn = random.Random(f"change {number} {index}"), number * ROWS + index
        identity = dice.randrange(CUSTOMERS)
        row = {
            "id": identity,
            "name": f"name {lsn}",
            "email": f"{lsn}@example.org",
            "balance": dice.randrange(10**6),
        }
        op = dice.choices("cud", (10, 75, 15))[0]
        lines.append(_change(op, lsn, None if op == "c" else row, None if op == "d" else row))
        if op == "d":
            lines.append(json.dumps({"payload": None}))
    random.Random(f"changes {number}").shuffle(lines)
    return lines


def _change(op: str, lsn: int, before: Any, after: Any) -> str:
    payload = {
        "before": before,
        "after": after,
        "op": op,
        "ts_ms": 1_772_323_200_000 + lsn,
        "source": {"lsn": lsn},
    }
    return json.dumps({"payload": payload})


def _requests(number: int) -> list[str]:
    found = []
    for index in range(ROWS):
        one = event(number, index)
        status = (200, 200, 200, 304, 404, 500)[one["amount"] % 6]
        found.append(_request(f"10.0.0.{one['amount'] % 50}", one["at"], one["page"], status, one["amount"]))
        if index % 31 == 0:
            found.append(f"\\x16\\x03\\x01 nobody understands line {number}.{index}")
    return found


def _request(host: str, at: datetime, page: str, status: int, size: int) -> str:
    return f'{host} - - [{at.astimezone(UTC):%d/%b/%Y:%H:%M:%S +0000}] "GET /{page} HTTP/1.1" {status} {size}'


def _readings(number: int) -> list[str]:
    """One of ten is broken in one of some ways."""
    lines = []
    for index in range(ROWS):
        one = event(number, index)
        reading: Row = {"device": one["page"], "reading": one["amount"] / 4, "at": one["at"].isoformat()}
        text = json.dumps(reading)
        broken = {
            3: text[:-9],
            13: json.dumps({**reading, "reading": "much"}),
            23: json.dumps({**reading, "device": None}),
            33: "",
            43: "[]",
            53: json.dumps({name: reading[name] for name in ("device", "at")}),
            63: f"{text} and more",
            73: text.replace("T", " at "),
        }
        lines.append(broken.get(index, text))
    return lines


STREAMS = {
    "clicks": Stream(_clicks, _click("last", f"page-{PAGES}", 0, LAST_AT)),
    "transactions-parquet": Stream(_clicks, _click("last", f"page-{PAGES}", 0, LAST_AT)),
    "impressions": Stream(_impressions, _impression("last", "campaign-0", LAST_AT)),
    "ad-clicks": Stream(_ad_clicks, {"ImpressionID": "none", "CreatedTime": f"{LAST_AT:%Y-%m-%d %H:%M:%S}"}),
    "changes": Stream(_changes, _change("d", 10**12, {"id": 0}, None)),
    "requests": Stream(_requests, _request("10.0.0.1", LAST_AT, "last", 200, 1)),
    "readings": Stream(_readings, "the last line"),
}
"""By the name of the folder."""
