"""`python -m convtune`, the examples that need NumPy alone, and the README's Python program, word for word."""

import pathlib
import re
import sys

import convtune
import pytest
from processes import python

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def command():
    from convtune.__main__ import _command

    if _command() is None:
        pytest.skip("the convtune command is neither in the package nor on the PATH")


def test_the_version_is_the_commands(command):
    ran = python("-m", "convtune", "--version")
    assert ran.returncode == 0 and convtune.__version__ in ran.stdout


def test_a_bad_option_is_the_callers_mistake(command):
    ran = python("-m", "convtune", "tune", "--no-such-option")
    assert ran.returncode == 2 and "no-such-option" in ran.stderr


def test_a_problem_is_planned(command):
    ran = python("-m", "convtune", "plan", "mb1ic3ih8oc4kh3", "--device", "cpu")
    assert ran.returncode == 0 and "direct" in ran.stdout


def test_its_python_is_this_one(command, tmp_path):
    """The command's own default would be whichever python3 comes first on the PATH."""
    shown = ["plan", "--help"]
    default = python("-c", "import os; os.environ.pop('CONVTUNE_PYTHON', None); "
                     f"from convtune.__main__ import main; import sys; sys.argv[1:] = {shown}; main()")  # fmt: skip
    flat = "".join(default.stdout.split())
    assert default.returncode == 0 and "".join(sys.executable.split()) in flat, default.stdout + default.stderr
    other = python("-m", "convtune", *shown, CONVTUNE_PYTHON="/of/somebody/python")
    assert "/of/somebody/python" in "".join(other.stdout.split())
    assert sys.executable not in other.stdout


def test_no_command_is_said(tmp_path):
    if (ROOT / "python" / "convtune" / "bin").exists() or "site-packages" in convtune.__file__:
        pytest.skip("the command is in the package")
    ran = python("-m", "convtune", "--version", PATH=str(tmp_path))
    assert ran.returncode == 2 and "pip install" in ran.stderr


def test_the_script_does_not_call_itself(tmp_path):
    if (ROOT / "python" / "convtune" / "bin").exists() or "site-packages" in convtune.__file__:
        pytest.skip("the command is in the package")
    script = tmp_path / "convtune"  # as pip makes it
    script.write_text(f"#!{sys.executable}\nimport sys, convtune.__main__\nsys.exit(convtune.__main__.main())\n")
    script.chmod(0o755)
    ran = python("-m", "convtune", "--version", PATH=str(tmp_path))
    assert ran.returncode == 2 and "pip install" in ran.stderr


def test_the_readme_program():
    program = re.search(r"\n```python\n(import convtune.*?)\n```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert program, "README.md has no Python program"
    ran = python("-c", program.group(1))
    assert ran.returncode == 0, ran.stderr
    for promised in re.findall(r"print\(.*\)  # (.*)", program.group(1)):
        assert promised in ran.stdout


def test_the_numpy_example():
    ran = python(ROOT / "examples" / "numpy_conv2d.py", OMP_NUM_THREADS="1")
    assert ran.returncode == 0, ran.stderr
    assert "(8, 96, 55, 55)" in ran.stdout and "GFLOP/s" in ran.stdout


def test_pytorch_is_not_imported_until_it_is_asked_for():
    ran = python("-c", "import sys, convtune; print(sorted({'torch', 'numpy', 'jax', 'cupy'} & set(sys.modules)))")
    assert ran.stdout == "[]\n", ran.stderr


def test_every_name_is_there():
    ran = python("-c", "import sys; sys.modules['torch'] = None; from convtune import *; print(Problem, conv2d, tune)")
    assert ran.returncode == 0, ran.stderr
    with pytest.raises(AttributeError, match="nosuch"):
        convtune.nosuch
    loaded_late = {"model_problems", "nn", "torch", "graphed", "optimize", "residual_pair1d", "restore"}
    assert {*convtune.__all__, *loaded_late} == set(dir(convtune))
    assert (pathlib.Path(convtune.__file__).parent / "py.typed").exists()


def test_what_needs_pytorch_says_so():
    program = "import sys; sys.modules['torch'] = None; import convtune; convtune.optimize"
    ran = python("-c", program)
    assert ran.returncode == 1 and "convtune.optimize needs PyTorch" in ran.stderr
