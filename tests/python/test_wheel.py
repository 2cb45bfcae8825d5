"""The files of a wheel beside the package: the licence, and the notices of what is compiled in; and how
scripts/build_wheel judges one. Nothing is built."""

import base64
import hashlib
import importlib.machinery
import importlib.util
import os
import re
import subprocess
import sys
import zipfile
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
             for name in re.findall(r"convtune_need\((\w+)", (ROOT / file).read_text())}
    headings = set(re.findall(r"^-{79}\n(\w+)", NOTICES.read_text(), re.MULTILINE))
    assert headings == found


@pytest.fixture(scope="module")
def build_wheel():
    loader = importlib.machinery.SourceFileLoader("build_wheel", str(ROOT / "scripts/build_wheel"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("build_wheel", loader))
    loader.exec_module(module)
    return module


def test_the_tag_is_of_the_newest_symbols(build_wheel):
    symbols = "0 DF *UND* 0 (GLIBC_2.2.5) a\n0 DF *UND* 0 (GLIBC_2.34) b\n0 DF *UND* 0 (GLIBCXX_3.4.9) c\n0 (GOMP_4.0) d"
    found = build_wheel.versions(symbols)
    assert found == {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 9)}
    assert build_wheel.policy(found) == (2, 34)
    assert build_wheel.policy({"GLIBC": (2, 28)}) == (2, 28)
    assert build_wheel.policy({**found, "GLIBCXX": (3, 4, 30)}) == (2, 39)
    assert build_wheel.policy({"GLIBC": (2, 99)}) is None


def test_a_library_that_not_every_machine_has_is_found(build_wheel):
    line = " 0x01 (NEEDED)             Shared library: [{}]\n"
    needed = "".join(map(line.format, ["libc.so.6", "libstdc++.so.6", "libgomp.so.1", "libfmt.so.9", "ld-linux-x86-64.so.2"]))
    assert build_wheel.foreign(needed, {"libgomp.so.1"}) == ["libfmt.so.9"]


def test_a_tag_is_in_the_name_and_in_the_files(build_wheel, tmp_path):
    (tmp_path / "to").mkdir()
    about, record = "a-1.dist-info/WHEEL", "a-1.dist-info/RECORD"
    with zipfile.ZipFile(tmp_path / "a-1-py3-none-linux_x86_64.whl", "w") as packed:
        packed.writestr(about, "Wheel-Version: 1.0\nTag: py3-none-linux_x86_64\n")
        packed.writestr(record, f"a/b.py,sha256=x,1\n{about},sha256=y,2\n{record},,\n")
    named = build_wheel.tagged(tmp_path / "a-1-py3-none-linux_x86_64.whl", "manylinux_2_34_x86_64", tmp_path / "to")
    assert named == tmp_path / "to/a-1-py3-none-manylinux_2_34_x86_64.whl"
    with zipfile.ZipFile(named) as packed:
        text = packed.read(about)
        assert b"Tag: py3-none-manylinux_2_34_x86_64\n" in text
        digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
        assert packed.read(record).decode() == f"a/b.py,sha256=x,1\n{about},sha256={digest},{len(text)}\n{record},,\n"
