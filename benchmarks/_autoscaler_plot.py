"""Curves of jobs as an SVG: rows that arrive, slots, rows that wait, slot-seconds, one below the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

WIDTH, PANEL, GAP, LEFT, RIGHT, TOP = 900, 130, 44, 70, 20, 50
COLOURS = ("#d9480f", "#1864ab", "#5c940d")
GREY = "#868e96"
POINTS_MOST = 300

Points = Sequence[tuple[float, float]]


def plot(jobs: Sequence[dict[str, Any]], arrivals: Points) -> str:
    """``jobs`` have ``name``, ``at_s``, ``slots`` and ``backlog``."""
    length_s = max(job["at_s"][-1] for job in jobs)
    panels: list[tuple[str, list[tuple[str, Points, bool]]]] = [
        ("rows that arrive per second", [(GREY, arrivals, False)]),
        ("slots in use", [(colour, _zip(job, job["slots"]), True) for job, colour in _coloured(jobs)]),
        ("rows that wait", [(colour, _zip(job, job["backlog"]), False) for job, colour in _coloured(jobs)]),
        ("slot-seconds", [(colour, _zip(job, _seconds(job)), False) for job, colour in _coloured(jobs)]),
    ]
    height = TOP + len(panels) * (PANEL + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        *(
            f'<text x="{LEFT + 180 * place}" y="22" fill="{colour}" font-weight="bold">{job["name"]}</text>'
            for place, (job, colour) in enumerate(_coloured(jobs)[::-1])
        ),
    ]
    for place, (title, curves) in enumerate(panels):
        parts += _panel(title, curves, TOP + place * (PANEL + GAP), length_s)
    return "\n".join([*parts, "</svg>", ""])


def _coloured(jobs: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    """The last one is drawn first, so that the first one is on top."""
    return list(zip(jobs, COLOURS, strict=False))[::-1]


def _zip(job: dict[str, Any], values: Sequence[float]) -> Points:
    return list(zip(job["at_s"], values, strict=True))


def _seconds(job: dict[str, Any]) -> list[float]:
    lengths = [0.0, *(later - one for one, later in pairwise(job["at_s"]))]
    return list(accumulate(length * slots for length, slots in zip(lengths, job["slots"], strict=True)))


def _panel(title: str, curves: list[tuple[str, Points, bool]], top: int, length_s: float) -> list[str]:
    highest = max(1.0, max(value for _, points, _ in curves for _, value in points))
    bottom = top + PANEL

    def x(at_s: float) -> str:
        return f"{LEFT + max(0.0, at_s) / length_s * (WIDTH - LEFT - RIGHT):.1f}"

    def y(value: float) -> str:
        return f"{bottom - value / highest * (PANEL - 10):.1f}"

    parts = [f'<text x="{LEFT}" y="{top - 6}" fill="#212529">{title}</text>']
    for value in (0.0, highest / 2, highest):
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value)}" y2="{y(value)}" stroke="#dee2e6"/>'
            f'<text x="{LEFT - 8}" y="{y(value)}" dy="4" text-anchor="end" fill="{GREY}">{value:,.0f}</text>'
        )
    unit_s, unit = (3 * 3600, "h") if length_s > 7200 else (60, "min")
    for place in range(int(length_s // unit_s) + 1):
        told = f"{place * unit_s // (3600 if unit == 'h' else 60)} {unit}"
        parts.append(
            f'<text x="{x(unit_s * place)}" y="{bottom + 16}" text-anchor="middle" fill="{GREY}">{told}</text>'
        )
    for colour, points, is_stepped in curves:
        points = points[:: max(1, len(points) // POINTS_MOST)]
        shown = [f"{x(at_s)},{y(value)}" for at_s, value in points]
        if is_stepped:
            shown = [shown[0]] + [
                point
                for (one, later) in pairwise(points)
                for point in (f"{x(later[0])},{y(one[1])}", f"{x(later[0])},{y(later[1])}")
            ]
        parts.append(
            f'<polyline points="{" ".join(shown)}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
        )
    return parts
