"""How much memory there is, and under a limit."""

import subprocess
import sys

import pytest

from hashlearn import memory

LIMITED = """
import resource
from hashlearn.memory import free_memory
free = free_memory()
soft = 1 << 30
resource.setrlimit(resource.RLIMIT_DATA, (soft, soft))
before = free_memory()
held = bytearray(200_000_000)
print(free, before, free_memory())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits private memory as Linux does")
def test_a_limit_of_the_process_counts_and_so_does_what_it_holds():
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True)
    free, before, after = map(int, done.stdout.split())
    assert 0 < before < min(free, 1 << 30)
    assert before - after == pytest.approx(200_000_000, rel=0.1)


def test_a_container_s_limit_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    free = memory.free_memory()
    (tmp_path / "memory.current").write_text("4000\n")
    for text, expected in (("max", free), ("7000", 3000), ("1000", 0)):
        (tmp_path / "memory.max").write_text(text + "\n")
        assert memory.free_memory() == pytest.approx(expected, rel=0.2)
    (tmp_path / "memory.max").write_text("7000\n")
    (tmp_path / "memory.stat").write_text("anon 100\ninactive_file 1500\nactive_file 40\n")
    assert memory.free_memory() == 4500


def test_the_limit_of_the_process_s_own_group_counts(tmp_path, monkeypatch):
    """Groups lie in one another, each with a limit; the least counts."""
    (tmp_path / "own").write_text("1:name=systemd:/other\n0::/a/b\n")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_PROCESS_CGROUP", tmp_path / "own")
    for group, limit in ((tmp_path, 9000), (tmp_path / "a", 6000), (tmp_path / "a" / "b", 8000)):
        group.mkdir(exist_ok=True)
        (group / "memory.current").write_text("1000\n")
        (group / "memory.max").write_text(f"{limit}\n")
    assert memory.free_memory() == 5000


def test_the_limits_of_control_groups_version_1_count(tmp_path, monkeypatch):
    """Many hosts still have them: a folder for each controller, and other names for the same numbers."""
    (tmp_path / "own").write_text("5:cpu,cpuacct:/c\n4:hugetlb,memory:/a/b\n0::/\n")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_PROCESS_CGROUP", tmp_path / "own")
    root = tmp_path / "memory"
    for group, limit in ((root, 2**63 - 4096), (root / "a", 6000), (root / "a" / "b", 8000)):
        group.mkdir()
        (group / "memory.usage_in_bytes").write_text("1000\n")
        (group / "memory.limit_in_bytes").write_text(f"{limit}\n")
    assert memory.free_memory() == 5000
    (root / "a" / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 700\n")
    assert memory.free_memory() == 5700
    # In a container the name is the host's, and the folder is the container's own group.
    (tmp_path / "own").write_text("4:memory:/docker/0123\n")
    (root / "memory.limit_in_bytes").write_text("3000\n")
    assert memory.free_memory() == 2000


def test_an_unknown_system_tells_nothing(monkeypatch):
    monkeypatch.delattr(memory.os, "sysconf")
    assert memory.free_memory() == 0
