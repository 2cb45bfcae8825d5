"""The examples that need PyTorch, and that of docs/pytorch.md, run as a person would; and without PyTorch, what they say."""

import importlib.util
import os
import pathlib
import re
import sys

import pytest
from processes import python
from torch_support import torch

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("arguments, words", [
    (["model_new.py"], "y (8, 96, 55, 55)"),
    (["resnet_stem.py"], "convtune.nn.Conv2d"),
    (["optimize_model.py", "--budget", "0", "--size", "64"], "the same bits as before: True"),
    (["train_convnext.py", "--device", "cpu", "--size", "32", "--batch", "4", "--width", "16", "--blocks", "1", "--steps", "5"],
     "convtune  loss "),
    (["train_unet3d.py", "--device", "cpu", "--size", "8", "--batch", "1", "--width", "4", "--stages", "2", "--steps", "5"],
     "convtune  loss "),
])  # fmt: skip
def test_examples(arguments, words):
    ran = python(ROOT / "examples" / arguments[0], *arguments[1:])
    assert ran.returncode == 0, ran.stderr
    assert words in ran.stdout


def test_a_video_decoder_or_what_it_needs():
    ran = python(ROOT / "examples" / "video_vae.py", "--calls", "1", "--latents", "2")
    if importlib.util.find_spec("diffusers") is None:
        assert ran.returncode != 0 and "diffusers is not here: `pip install torch diffusers`" in ran.stderr
    else:
        assert ran.returncode == 0 and "channels last: " in ran.stdout, ran.stderr


def test_a_model_by_import_path(tmp_path):
    (tmp_path / "somebodys.py").write_text("import torch\ndef net(k): return torch.nn.Conv2d(3, int(k), 3)\n")
    example = ROOT / "examples" / "optimize_model.py"
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    ran = python(example, "somebodys:net", "8", "--budget", "0", "--size", "32", PYTHONPATH=path)
    assert ran.returncode == 0, ran.stderr
    assert "restored; the same bits as before: True" in ran.stdout
    ran = python(example, "nobodys:net")
    assert ran.returncode != 0 and "nobodys is not installed here" in ran.stderr


def test_the_documents_programs(tmp_path, monkeypatch):
    programs = re.findall(r"\n```python\n(import torch.*?)\n```", (ROOT / "docs" / "pytorch.md").read_text(), re.DOTALL)
    assert len(programs) == 2, "docs/pytorch.md has other PyTorch programs"
    monkeypatch.chdir(tmp_path)
    ran = python("-c", programs[0])
    assert ran.returncode == 0, ran.stderr
    assert "whole forward" in ran.stdout or "not proven" in ran.stdout
    ran = python("-c", programs[1])
    assert ran.returncode == 0, ran.stderr
    assert "all of Sequential" in ran.stdout and "where the time goes" in ran.stdout
    assert (tmp_path / "net.json").exists() and "Where the time goes" in (tmp_path / "net.html").read_text()


def test_model_new_is_the_original():
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import model_new
    finally:
        sys.path.pop(0)
    model = model_new.ModelNew(num_classes=1000)
    assert list(model.state_dict()) == ["conv1.weight", "conv1.bias"]
    assert model.conv1.weight.shape == (96, 3, 11, 11)
    x = torch.rand(1, 3, 224, 224)
    assert torch.equal(model(x), model.conv1(x))
