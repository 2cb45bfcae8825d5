#!/usr/bin/env python3
"""Lists comments that open without a noun or a verb: "Of the rows", "What a layer needs", "Where it fits".

Reads every comment and docstring of the C++, CUDA, Python, CMake and shell files of a source tree. Prints FILE:LINE and
the text of each line that opens a comment, or a sentence within one, with a word of OPENERS, then how many there are.
Exit code 1 when they are more than MOST of all comment lines. Usage: comment_openers.py SOURCES"""

import re
import sys
from pathlib import Path
from typing import Iterator, NamedTuple

OPENERS = re.compile(r"[^\w`]*(of|what|where|whether|those|such|likewise|so many|the same)\b", re.IGNORECASE)
MOST = 0.005
FOLDERS = ["src", "include", "cli", "python", "tests", "bench", "scripts", "examples", "cmake"]
C_SUFFIXES = {".c", ".cpp", ".cu", ".cuh", ".h"}
# Literals come before comments, so that a comment's mark within one opens none; nor does a digit separator.
C_COMMENT = r'R"\((?:.*?)\)"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'|(//[^\n]*|/\*.*?\*/)'
DOCSTRING = r'(?:(?<=\A)|(?<=\n)) *(r?"""(?:\\.|[^\\])*?""")|r?"""(?:\\.|[^\\])*?"""|r?\'\'\'(?:\\.|[^\\])*?\'\'\''
SCRIPT_COMMENT = r'"(?:\\.|[^"\\])*"|\'[^\'\n]*\'|(?<!\S)(#[^\n]*)'
KINDS = {**dict.fromkeys([".c", ".cpp", ".cu", ".cuh", ".h"], C_COMMENT),
         **dict.fromkeys([".cmake", ".sh", "CMakeLists.txt"], SCRIPT_COMMENT), ".py": DOCSTRING + "|" + SCRIPT_COMMENT}
SHEBANG = {"#!/usr/bin/env python3": ".py", "#!/usr/bin/env bash": ".sh", "#!/bin/sh": ".sh"}


class Line(NamedTuple):
    number: int
    column: int
    text: str
    first: bool  # per comment; else it goes on with that of the line before


def placed(source: str, comments: Iterator[tuple[int, str]]) -> Iterator[Line]:
    """The lines of comments that begin at given places of a source; neighbours in one column are one comment."""
    before = Line(-1, 0, "", True)
    for start, comment in comments:
        number = source.count("\n", 0, start) + 1
        column = start - source.rfind("\n", 0, start)
        for more, text in enumerate(comment.split("\n")):
            goes_on = more > 0 or (before.number == number - 1 and before.column == column)
            before = Line(number + more, column, text.strip("/*#! \t\"'"), not goes_on)
            yield before


def comment_lines(path: Path) -> list[Line]:
    if path.suffix in {".json", ".jsonl", ".png"}:
        return []
    source = path.read_text(errors="replace")
    kind = KINDS.get(path.suffix) or KINDS.get(path.name) or KINDS.get(SHEBANG.get(source.partition("\n")[0], ""))
    if kind is None:
        return []
    found = ((match.start(match.lastindex), match[match.lastindex]) for match in re.finditer(kind, source, re.DOTALL) if match.lastindex)
    return [line for line in placed(source, found) if line.text]


def main() -> int:
    root = Path(sys.argv[1])
    lines = comments = 0
    wrong: list[str] = []
    for path in sorted(p for folder in FOLDERS for p in (root / folder).rglob("*") if p.is_file()):
        before = "."
        for line in comment_lines(path):
            lines, comments = lines + 1, comments + line.first
            if OPENERS.match(line.text) and (line.first or before.endswith((".", ":", "?"))):
                wrong.append(f"{path.relative_to(root)}:{line.number}: {line.text}")
            before = line.text
    print("\n".join(wrong))
    print(f"{len(wrong)} of {lines} comment lines ({100 * len(wrong) / lines:.1f} %, at most {100 * MOST:g} %), {comments} comments")
    return 1 if len(wrong) > MOST * lines else 0


if __name__ == "__main__":
    sys.exit(main())
