"""The shells' completions and the manual page that the build made: every option of every command is in them, and the
shells that are installed complete by them.

Usage: completion_test.py PATH_OF_CONVTUNE [unittest options]. Standard library only.
"""

import contextlib
import os
import pty
import re
import select
import shutil
import subprocess
import unittest
from pathlib import Path

from convtune_command import CliTest, main

SOURCES = Path(__file__).resolve().parents[2]


def on_path(program):
    return unittest.skipUnless(shutil.which(program), f"{program} is not installed")


class Completion(CliTest):
    def setUp(self):
        super().setUp()
        self.made = Path(self.convtune).parent / "completions"
        self.bash, self.zsh, self.fish, self.man = (
            self.made / name for name in ("convtune", "_convtune", "convtune.fish", "convtune.1"))

    def commands(self, *words):
        """(words, options, commands below) of a command and of all below it, as their --help has them."""
        text = self.ok(*words, "--help").stdout
        listed = {title: re.findall(r"^  (\S+?)(?:, (\S+))?(?: |$)",
                                    text.partition(f"\n{title}:\n")[2].partition("\n\n")[0], re.MULTILINE)
                  for title in ("What", "Where", "How", "Output", "Options", "Commands")}
        options = [name for title, found in listed.items() if title != "Commands" for names in found for name in names if name]
        commands = [name for name, _ in listed["Commands"]]
        yield words, options, commands
        for word in commands:
            yield from self.commands(*words, word)

    def test_help_has_every_option_of_the_sources(self):
        declared = {name for file in (SOURCES / "cli").glob("*.cpp") for call in
                    re.findall(r'add_(?:option|flag|whole_number|choice)\(([^;]*?)[;{]', file.read_text())
                    for name in re.findall(r'"(--[\w-]+)', call.partition("->")[0].partition("\n\n")[0])}
        shown = {option for _, options, _ in self.commands() for option in options}
        self.assertGreater(len(declared), 30)
        self.assertEqual(declared - shown, set())

    def environment(self):
        """As the build printed: the sanitizers' presets take oneDNN from the tests alone."""
        return {name: value for name, value in super().environment().items() if name != "CONVTUNE_ONEDNN"}

    def test_what_is_printed_now_is_what_the_build_made(self):
        for shell, file in (("bash", self.bash), ("zsh", self.zsh), ("fish", self.fish)):
            self.assertEqual(self.ok("completion", shell).stdout, file.read_text())
        self.assertEqual(self.ok("man-page").stdout, self.man.read_text())
        self.refused(["completion", "tcsh"], 2, "tcsh", "there are bash, zsh, fish")
        self.refused(["completion"], 2, "SHELL is missing")

    def test_every_option_of_every_command(self):
        zsh = self.zsh.read_text()
        sections = re.split(r"^\.S[HS] ", self.man.read_text().replace("\\-", "-"), flags=re.MULTILINE)
        seen = 0
        for words, options, commands in self.commands():
            title = " ".join(["convtune", *words]) if words else "OPTIONS"
            page = next(section for section in sections if section.startswith(title + "\n"))
            function = re.search(rf"^_{'_'.join(['convtune', *words])}\(\) {{(.*?)^}}", zsh, re.DOTALL | re.MULTILINE)[1]
            for option in options:
                seen += 1
                self.assertRegex(page, rf"(?m)^\.B (.*, )?{option}\b", (words, option))
                self.assertRegex(function, rf"{option}[=,}}'\[]", (words, option))
            for command in commands:
                self.assertIn(f"\n        {command}) _", function)
        self.assertGreater(seen, 100)

    def in_bash(self, *lines):
        """Returns the words that bash offers for the last word of each line."""
        script = f"source {self.bash}\n" + "".join(
            f"COMP_WORDS=({' '.join(map(self.quoted, line))}); COMP_CWORD={len(line) - 1}; COMPREPLY=()\n"
            '_convtune; echo "${COMPREPLY[*]}"\n' for line in lines)
        done = subprocess.run(["bash", "--norc", "-c", script], cwd=self.folder, capture_output=True, text=True,
                              timeout=120, check=True)
        self.assertEqual(done.stderr, "")
        return [line.split() for line in done.stdout.split("\n")[:-1]]

    @staticmethod
    def quoted(word):
        return "'" + word + "'"

    @on_path("bash")
    def test_bash(self):
        everything = list(self.commands())
        offered = self.in_bash(*(["convtune", *words, "-"] for words, _, _ in everything))
        for (words, options, _), found in zip(everything, offered, strict=True):
            self.assertEqual(sorted(found), sorted(options), words)
        (self.folder / "a file.json").touch()
        for line, expected in [
            (["convtune", ""], next(commands for words, _, commands in everything if not words)),
            (["convtune", "db", ""], ["list", "show", "export", "import", "clean"]),
            (["convtune", "tune", "--b"], ["--batch", "--budget"]),
            (["convtune", "tune", "alexnet"], ["alexnet_conv1", "alexnet_conv1_torchvision", "alexnet_conv2"]),
            (["convtune", "--color", "never", "tune", "resnet_s"], ["resnet_stem"]),
            (["convtune", "tune", "--suite", "ste"], ["stem"]),
            (["convtune", "bench", "--device", "="], ["auto", "cpu", "cuda"]),
            (["convtune", "bench", "--device", "=", "cp"], ["cpu"]),
            (["convtune", "verify", "--algorithm", "refe"], ["reference"]),
            (["convtune", "export", "--format", ""], ["triton", "cuda"]),
            (["convtune", "plan", "--target", "rtx"], ["rtx4090", "rtx5090"]),
            (["convtune", "tune", "--batch", ""], []),
            (["convtune", "bench", "--json", "a"], ["a", "file.json"]),
            (["convtune", "analyze", "a"], ["a", "file.json"]),
            (["convtune", "completion", ""], ["bash", "zsh", "fish"]),
        ]:
            self.assertEqual(self.in_bash(line), [expected], line)

    @on_path("fish")
    def test_fish(self):
        def offers(*lines):
            script = f"source {self.fish}\n" + "".join(f'echo "== "; complete -C "{line}"\n' for line in lines)
            done = subprocess.run(["fish", "--no-config", "-c", script], cwd=self.folder, capture_output=True,
                                  text=True, timeout=120, check=True, env={**os.environ, "HOME": str(self.folder)})
            self.assertEqual(done.stderr, "")
            return [[line.split("\t")[0] for line in block.splitlines() if line]
                    for block in done.stdout.split("== \n")[1:]]

        everything = list(self.commands())
        found = offers(*(" ".join(["convtune", *words, "--"]) for words, _, _ in everything))
        for (words, options, _), names in zip(everything, found, strict=True):
            self.assertEqual(set(names), {name for name in options if name.startswith("--")}, words)
        for line, expected in [("convtune db ", ["clean", "export", "import", "list", "show"]),
                               ("convtune tune --suite ste", ["stem"]),
                               ("convtune bench --device=cp", ["--device=cpu"]),
                               ("convtune db show resnet_s", ["resnet_stem"])]:
            self.assertEqual(offers(line), [expected], line)

    @on_path("zsh")
    def test_zsh(self):
        child, terminal = pty.fork()
        if child == 0:
            os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "TERM": "xterm", "HOME": str(self.folder), "PS1": "> "})
        said = b""

        def until(needle):
            nonlocal said
            while needle not in said:
                self.assertTrue(select.select([terminal], [], [], 120)[0], said)
                said += os.read(terminal, 65536)  # an error where zsh is gone
            said = said.partition(needle)[2]

        with contextlib.closing(os.fdopen(terminal, "wb", buffering=0)) as keys:
            keys.write(f"fpath=({self.made} $fpath); autoload -U compinit; compinit -u -D; echo rea''dy\n".encode())
            until(b"ready")
            for typed, needle in [(b"convtune tu", b"ne"), (b"convtune tune --budg", b"et"),
                                  (b"convtune db sh", b"ow"), (b"convtune tune resnet_s", b"tem"),
                                  (b"convtune tune --suite ste", b"m"), (b"convtune export --format tri", b"ton")]:
                keys.write(typed)
                until(typed)
                keys.write(b"\t")
                until(needle)
                keys.write(b"\x15")  # the line is given up
            keys.write(b"exit\n")
        os.waitpid(child, 0)

    @on_path("groff")
    def test_the_manual_page_renders_without_warnings(self):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-P-cbou", "-rLL=80n", str(self.man)],
                              capture_output=True, text=True, timeout=60, check=True)
        self.assertEqual(done.stderr, "")
        for needle in ("convtune - Convolutions", "EXIT STATUS", "--min-gain SHARE", "convtune tune alexnet_conv1"):
            self.assertIn(needle, done.stdout.replace("\u2010", "-").replace("\u2212", "-"))

    @on_path("mandoc")
    def test_the_manual_page_is_well_formed(self):
        done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", str(self.man)], capture_output=True, text=True,
                              timeout=60, check=False)
        found = [line for line in done.stdout.splitlines() if "missing date" not in line]  # a build has none
        self.assertEqual(found, [])

    def test_the_manual_page_and_the_documents_say_the_same(self):
        """Exit codes and environment variables."""
        page, document = self.man.read_text(), (SOURCES / "docs" / "command.md").read_text()
        for title, pattern in [("EXIT STATUS", r"^\| (\d+) \|"), ("ENVIRONMENT", r"^\| `(\w+)` \|")]:
            words = re.findall(pattern, document, re.MULTILINE)
            section = page.partition(f".SH {title}\n")[2].partition(".SH")[0]
            self.assertEqual(re.findall(r"^\.B (\w+)$", section, re.MULTILINE), words)
            self.assertGreater(len(words), 5)


if __name__ == "__main__":
    main()
