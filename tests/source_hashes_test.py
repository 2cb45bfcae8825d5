"""The hashes of the CPU's algorithms (cmake/source_hashes.cmake) change with the code that they run, and with nothing else.

Usage: source_hashes_test.py SOURCE_FOLDER
"""

import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path


class SourceHashes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for part in ("algorithms", "tile"):
            shutil.copytree(SOURCE / "src/cpu" / part, self.folder / "cpu" / part)

    def hashes(self):
        made = self.folder / "made.cpp"
        subprocess.run(["cmake", "-P", SOURCE / "cmake/source_hashes.cmake", self.folder, made], check=True)
        return dict(re.findall(r'algorithm == "(\w+)"\) return "([0-9a-f]{16})"', made.read_text()))

    def changed_by(self, file, more):
        before = self.hashes()
        with open(self.folder / "cpu" / file, "a") as source:
            source.write(more)
        after = self.hashes()
        self.assertEqual(before.keys(), after.keys())
        return {name for name, value in after.items() if value != before[name]}

    def test_change_with_the_code_that_is_run(self):
        everything = {folder.name for folder in (SOURCE / "src/cpu/algorithms").iterdir() if folder.is_dir()}
        self.assertEqual(everything, self.hashes().keys())
        self.assertEqual(len(everything), len(set(self.hashes().values())))
        self.assertEqual(self.changed_by("algorithms/direct/direct_executable.cpp", "int a;\n"), {"direct"})
        self.assertEqual(self.changed_by("tile/vectors.h", "int a;\n"), everything)
        self.assertEqual(self.changed_by("tile/winograd/winograd_parts.h", "int a;\n"),
                         {name for name in everything if name.startswith("winograd")})

    def test_do_not_change_with_comments_spaces_and_the_choice_of_configs(self):
        self.assertEqual(self.changed_by("tile/vectors.h", "\n  // a\n"), set())
        self.assertEqual(self.changed_by("algorithms/direct/direct_candidates.cpp", "int a;\n"), set())


if __name__ == "__main__":
    SOURCE = Path(sys.argv.pop(1)).resolve()
    unittest.main()
