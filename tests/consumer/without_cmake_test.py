"""The installed libraries without CMake: README's program and the one of docs/c-and-cpp.md by pkg-config and a bare
compiler, what the libraries need, and an older C++.

Usage: without_cmake_test.py SOURCES PREFIX PKG_CONFIG COMPILER C_LIBRARY. Standard library only.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

sources, prefix = Path(sys.argv[1]), Path(sys.argv[2])
pkg_config, compiler, c_library = sys.argv[3], shlex.split(sys.argv[4]), sys.argv[5]
libraries = next(prefix.rglob("libconvtune.a")).parent
environment = {**os.environ, "PKG_CONFIG_PATH": str(libraries / "pkgconfig"), "CONVTUNE_DATA_DIR": str(prefix / "no_records")}


def output(*words, **options):
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, **options)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def block(page, language, which=0):
    return re.findall(rf"```{language}\n(.*?)```", (sources / page).read_text(), re.S)[which]


def flags(name, *words):
    return shlex.split(output(pkg_config, *words, "--cflags", "--libs", name))


# Nobody who links convtune needs {fmt}.
shared = libraries / c_library
assert "fmt" not in output("readelf", "-d", str(shared)), "libconvtune_c.so needs {fmt}"
for package in libraries.rglob("convtune*.cmake"):
    assert "fmt" not in package.read_text(), package

# The library's name is the header's number.
version = re.search(r"#define CONVTUNE_C_VERSION (\d+)\n", (prefix / "include/convtune/c.h").read_text())[1]
soname = re.search(r"SONAME.*\[(.*)\]", output("readelf", "-d", str(shared)))[1]
assert soname == f"libconvtune_c.so.{version}" and c_library.startswith(soname + "."), (soname, c_library)

with tempfile.TemporaryDirectory() as box:
    # An older C++ is told so, and first.
    for header in sorted((prefix / "include/convtune").glob("*.h")):
        if header.name in ("c.h", "torch.h"):
            continue
        done = subprocess.run([*compiler, "-std=c++17", "-fsyntax-only", "-x", "c++", f"-I{prefix}/include", "-"],
                              input=f"#include <convtune/{header.name}>\n", capture_output=True, text=True, check=False)
        first = next(line for line in done.stderr.splitlines() if ": error: " in line)
        assert done.returncode != 0 and "need C++20" in first, (header.name, first)
    if not pkg_config:
        print("no pkg-config here")
        sys.exit(77)
    program = Path(box, "readme.cpp")
    program.write_text(block("README.md", "cpp"))
    output(*compiler, "-std=c++20", str(program), *flags("convtune"), "-o", f"{box}/readme")
    assert output(f"{box}/readme").endswith("y[0] = 122.5\n")

    body = block("docs/c-and-cpp.md", "c").split("\n\n", 1)
    program = Path(box, "face.c")
    program.write_text(f"#include <stdio.h>\n#include <stdlib.h>\n{body[0]}\n"
                       "static float x[3 * 224 * 224], w[96 * 3 * 11 * 11], bias[96], y[96 * 55 * 55];\n"
                       "int main(void) {\n  bias[0] = 122.5f;\n" + body[1] + '  printf("%g", y[0]);\n  return 0;\n}\n')
    c_compiler = [re.sub(r"\+\+$", "", compiler[0]) if "clang" in compiler[0] else compiler[0].replace("g++", "gcc"), *compiler[1:]]
    if subprocess.run([*c_compiler, "--version"], capture_output=True, check=False).returncode != 0:
        c_compiler = [*compiler, "-x", "c"]
    where = output(pkg_config, "--variable=libdir", "convtune_c").strip()
    output(*c_compiler, "-std=c11", str(program), *flags("convtune_c"), f"-Wl,-rpath,{where}", "-o", f"{box}/face")
    assert output(f"{box}/face") == "122.5"
print("without CMake: two programs, every header, the library's names")
