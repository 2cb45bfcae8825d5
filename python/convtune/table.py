"""Tables for people: columns lined up, as the command prints them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

__all__ = ["TIMES", "html_table", "lined_up", "microseconds", "scale", "time_text"]

TIMES = ("us", "ms", "s")


def lined_up(header: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> str:
    """Text of several lines, each ended. `right`: a letter a column, "r" where it is set to the right."""
    every = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in every) for i in range(len(header))]
    sides = right.ljust(len(header))
    lines = []
    for row in every:
        cells = [cell.rjust(width) if side == "r" else cell.ljust(width) for cell, width, side in zip(row, widths, sides)]
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> str:
    """A <table> for notebooks, its text escaped. `right`: as of lined_up."""
    sides = right.ljust(len(header))

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(
            f'<{tag} style="text-align: {"right" if side == "r" else "left"}">{escape(cell)}</{tag}>'
            for cell, side in zip(cells, sides)
        )

    return f"<table><thead>{line('th', header)}</thead><tbody>{''.join(line('td', row) for row in rows)}</tbody></table>"


def microseconds(us: float) -> str:
    """About four digits, whatever the magnitude."""
    return f"{us:.3f}" if us < 10 else f"{us:.1f}" if us < 1000 else f"{us:.0f}"


def scale(reference: float, units: Sequence[str]) -> tuple[str, Callable[[float], str]]:
    """The unit that a column of numbers shares, each of `units` being 1000 of the one before, and how they are written
    in it: with four digits of `reference`, so that their points line up."""
    step = 0
    while reference >= 999.95 and step + 1 < len(units):
        reference, step = reference / 1000, step + 1
    decimals = 3 if reference < 10 else 2 if reference < 100 else 1 if reference < 1000 else 0
    return units[step], lambda value: f"{value / 1000**step:.{decimals}f}"


def time_text(us: float) -> str:
    """ "9.368 ms" """
    unit, text = scale(us, TIMES)
    return f"{text(us)} {unit}"
