"""The files of a wheel beside the package: the licence, and the notices of what is compiled in. Nothing is built."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTICES = ROOT / "THIRD_PARTY_NOTICES"


def test_the_wheel_holds_the_licences(tmp_path):
    pytest.importorskip("scikit_build_core")
    program = f"from scikit_build_core.build import *; prepare_metadata_for_build_wheel({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=60,
                   env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"})
    for file in (ROOT / "LICENSE", NOTICES):
        (in_wheel,) = tmp_path.glob(f"*.dist-info/licenses/{file.name}")
        assert in_wheel.read_text() == file.read_text()


def test_the_notices_name_what_is_distributed():
    found = {name for file in ("CMakeLists.txt", "cli/CMakeLists.txt")
             for name in re.findall(r"convtune_need(?:_headers)?\(\s*(\w+)", (ROOT / file).read_text())}
    headings = set(re.findall(r"^-{79}\n(\w+)", NOTICES.read_text(), re.MULTILINE))
    assert headings == found
