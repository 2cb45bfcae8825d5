"""`make install` builds whatever it installs, in whichever order the doors of the Makefile are used.

Usage: install_test.py SOURCES BUILD, a build folder of Ninja's. Standard library only.
"""

import re
import subprocess
import sys
from pathlib import Path

sources, build = (Path(arg).resolve() for arg in sys.argv[1:3])


def output(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def plain_name(file):
    """A shared library goes by three names: libx.so.1.2.3, libx.so.1, libx.so."""
    return re.sub(r"\.so[.\d]*$", ".so", str(file))


recipe = output("make", "--no-print-directory", "-C", str(sources), "-n", "install", "PREFIX=/some/where")
assert "cmake --install build/release --prefix /some/where" in recipe, recipe
targets = re.search(r"cmake --build .* --target (.*)", recipe)[1].split()

# Lists the files of each target.
asked = [output("ninja", "-C", str(build), "-t", tool, *targets) for tool in ("query", "inputs")]
made = {plain_name(build / line.strip()) for line in "\n".join(asked).splitlines()}
# Projects that tests have built below tests/ install nothing of ours.
installed = {Path(file) for script in build.rglob("cmake_install.cmake") if build / "tests" not in script.parents
             for file in re.findall(r'"([^"\n]+)"', script.read_text())
             if re.match(rf"{re.escape(str(build))}/(cli/convtune$|.*\.(a|so)[.\d]*$)", file)}
assert len(installed) >= 3, installed  # the library, the shared one, the command
missing = {file for file in installed if plain_name(file) not in made}
assert not missing, f"installed, and built by none of {targets}: {missing}"

readme = (sources / "README.md").read_text()
assert "make install PREFIX=" in readme and "cmake --install" not in readme
