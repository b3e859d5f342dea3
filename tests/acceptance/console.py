"""What Spark's console sink has printed: the tables of all batches, read back."""

from __future__ import annotations

from collections import Counter

Table = list[dict[str, str]]


def batches(text: str) -> list[Table]:
    """Each batch's rows, in the order in which they were printed."""
    found: list[Table] = []
    names: list[str] = []
    for line in text.splitlines():
        if line.startswith("Batch: "):
            found.append([])
            names = []
        elif line.startswith("|") and line.endswith("|") and found:
            cells = [cell.strip() for cell in line[1:-1].split("|")]
            if names:
                found[-1].append(dict(zip(names, cells, strict=True)))
            names = names or cells
    return found


def word_counts(text: str) -> Counter[str]:
    """Complete mode: the counts of the last batch, over all windows if there are windows."""
    tables = batches(text)
    counts: Counter[str] = Counter()
    for row in tables[-1] if tables else []:
        counts[row["word"]] += int(row["count"])
    return counts


def session_counts(text: str) -> Counter[str]:
    """Update mode: the last word on each session, over all sessions of a word."""
    last = {
        (row["sessionId"], start_of(row)): int(row.get("numEvents") or row["count"])
        for table in batches(text)
        for row in table
    }
    counts: Counter[str] = Counter()
    for (word, _), count in last.items():
        counts[word] += count
    return counts


def start_of(row: dict[str, str]) -> str:
    return next(value for name, value in row.items() if "start" in name)
