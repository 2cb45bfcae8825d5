"""PyTorch's caches of compiled graphs: none finds what another version of convtune left there."""

import subprocess
import sys

import pytest
from torch_support import torch

import convtune.torch
import convtune.torch.backend  # registers the backend
from convtune.torch import caches as torch_caches

nn = torch.nn


@pytest.fixture
def config():
    import torch.compiler.config as config

    if not hasattr(config, "cache_key_tag"):
        pytest.skip("this PyTorch has no tag for its caches")
    return config


def test_importing_tags_them(config):
    assert f"convtune {torch_caches.version()}" in config.cache_key_tag


def test_the_users_own_tag_stays(config):
    with config.patch(cache_key_tag="mine"):
        torch_caches.tag()
        torch_caches.tag()
        assert config.cache_key_tag == f"mine convtune {torch_caches.version()}"


def test_a_version_is_its_sources(tmp_path, monkeypatch):
    versions = set()
    for text in ("one", "another"):
        (tmp_path / "how.py").write_text(text)
        monkeypatch.setattr(torch_caches, "__file__", str(tmp_path / "caches.py"))
        torch_caches.version.cache_clear()
        versions.add(torch_caches.version())
    torch_caches.version.cache_clear()
    assert len(versions) == 2 and all(len(version) == 16 for version in versions)


@pytest.mark.parametrize("backend", ["inductor", "convtune"])
def test_another_version_compiles_again(config, backend, monkeypatch, tmp_path):
    """One model in what would be two processes, the second with another convtune."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    from torch._dynamo.utils import counters

    class Net(nn.Module):
        def forward(self, x, w):
            return convtune.torch.conv2d(x, w).relu()

    def hits(version):
        with config.patch(cache_key_tag=f"convtune {version}"):
            monkeypatch.setattr(torch_caches, "version", lambda: version)
            torch._dynamo.reset()
            counters.clear()
            with torch.no_grad():
                torch.compile(Net(), backend=backend)(torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3))
            found = counters["aot_autograd"]["autograd_cache_hit"] + counters["inductor"]["fxgraph_cache_hit"]
            missed = counters["aot_autograd"]["autograd_cache_miss"] + counters["inductor"]["fxgraph_cache_miss"]
            return found, missed

    assert hits("1")[0] == 0
    found, missed = hits("1")
    assert found > 0 and missed == 0
    assert hits("2")[0] == 0


KEPT = """
import sys
from types import SimpleNamespace
from torch._inductor.runtime.autotune_cache import AutotuneCache
best = AutotuneCache.create({"autotune_local_cache": True}, sys.argv[1], "of these")
best.save(SimpleNamespace(kwargs={"XBLOCK": 64}, num_warps=4, num_stages=1), 1000)
"""


@pytest.mark.parametrize("users", ["", "mine"])
def test_best_configs_of_compiling_processes_are_found(config, users, monkeypatch, tmp_path):
    """Inductor's processes, which have no tag but the environment's, say where the best config of a Triton kernel is kept."""
    file = tmp_path / "cabc.py"
    monkeypatch.setenv("TORCH_COMPILE_CACHE_KEY_TAG", users)
    subprocess.run([sys.executable, "-c", KEPT, str(file)], check=True, timeout=300)
    from torch._inductor.runtime.autotune_cache import AutotuneCache
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():  # as it is traced, whoever compiles it
        convtune.torch.conv2d(torch.empty(1, 3, 8, 8), torch.empty(4, 3, 3, 3))
    with config.patch(cache_key_tag=users):
        torch_caches.tag()
        found = AutotuneCache.create({"autotune_local_cache": True}, str(file), "of these")._read()
        assert found["XBLOCK"] == 64 and found["configs_hash"] == "of these"
        other = AutotuneCache.create({"autotune_local_cache": True}, str(tmp_path / "cabd.py"), "of these")
        assert other._read() is None
    with config.patch(cache_key_tag="another"):
        assert AutotuneCache.create({"autotune_local_cache": True}, str(file), "of these")._read() is None
