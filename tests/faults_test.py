"""Each fault that mutants.py would put into a kernel (host_gpu/faults.py) can be put in: its text is in its file.

Usage: faults_test.py SOURCE_FOLDER
"""

import sys
import unittest
from pathlib import Path


class Faults(unittest.TestCase):
    def test_are_in_texts_as_they_are(self):
        stale = {}
        for name, problem, file, text, instead in FAULTS:
            path = ROOT / "src/cuda" / file.format(PROBLEMS[problem][0])
            if not path.is_file() or text not in path.read_text() or text == instead:
                stale[name] = (str(path.relative_to(ROOT)), text)
        self.assertEqual(stale, {})

    def test_have_names_of_their_own(self):
        names = [fault[0] for fault in FAULTS]
        self.assertEqual(sorted(set(names)), sorted(names))


if __name__ == "__main__":
    ROOT = Path(sys.argv.pop(1)).resolve()
    sys.path.insert(0, str(ROOT / "tests/host_gpu"))
    from faults import FAULTS, PROBLEMS

    unittest.main()
