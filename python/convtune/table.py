"""Tables for people: columns lined up, as the command prints them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["lined_up", "microseconds"]


def lined_up(header: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> str:
    """Text of several lines, each ended. `right`: a letter a column, "r" where it is set to the right."""
    every = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in every) for i in range(len(header))]
    sides = right.ljust(len(header))
    lines = []
    for row in every:
        cells = [
            cell.rjust(width) if side == "r" else cell.ljust(width) for cell, width, side in zip(row, widths, sides)
        ]
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


def microseconds(us: float) -> str:
    """About four digits, whatever the magnitude."""
    return f"{us:.3f}" if us < 10 else f"{us:.1f}" if us < 1000 else f"{us:.0f}"
