"""Free memory and peak memory of this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["forget_peak", "free_memory", "peak_memory"]

_CGROUP = Path("/sys/fs/cgroup")
_PROCESS_CGROUP = Path("/proc/self/cgroup")
# Files with a group's limit and usage, and the count of its cached file pages in memory.stat: version 2, version 1.
_CGROUP_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def free_memory() -> int:
    """Bytes that this process can still allocate; 0 if unknown."""
    return max(0, min(_remaining(), default=0))


def peak_memory() -> int | None:
    """Peak memory of this process in bytes, since :func:`forget_peak` where that is supported."""
    peak = _fields(Path("/proc/self/status")).get("VmHWM")
    if peak is not None:
        return 1024 * peak
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def forget_peak() -> bool:
    """Reset the peak memory; False if the system does not support it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _remaining() -> Iterator[int]:
    """Remaining bytes of the machine's memory, of its containers, and of the limits of the process."""
    try:
        yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not this kind of system
        return
    kilobytes = _fields(Path("/proc/meminfo")) | _fields(Path("/proc/self/status"))
    if "MemAvailable" in kilobytes:
        yield 1024 * kilobytes["MemAvailable"]
    for group in _groups():
        for limit_file, used_file, cache in _CGROUP_FILES:
            limit, used = _number(group / limit_file), _number(group / used_file)
            if limit is not None and used is not None:
                # The system frees cached pages of files, such as memory maps, when memory is needed.
                yield limit - used + _counts(group / "memory.stat").get(cache, 0)
    if sys.platform != "win32":
        import resource

        for kind, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
            soft, _ = resource.getrlimit(kind)
            if soft != resource.RLIM_INFINITY:
                yield soft - 1024 * kilobytes.get(name, 0)


def _groups() -> list[Path]:
    """The control groups of this process and their parents: version 2, and version 1 for memory."""
    try:
        lines = _PROCESS_CGROUP.read_text().splitlines()
    except OSError:
        lines = []
    group_v2, group_v1 = "", ""
    for line in lines:  # "0::/group" in version 2, "4:memory:/group" in version 1
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if line.startswith("0::"):
            group_v2 = group
        elif "memory" in controllers.split(","):
            group_v1 = group
    return [*_with_parents(_CGROUP, group_v2), *_with_parents(_CGROUP / "memory", group_v1)]


def _with_parents(root: Path, group: str) -> list[Path]:
    """The group and its parents. In a container the name may be the host's; then only ``root`` exists."""
    inner = root / group.lstrip("/")
    return [inner, *(parent for parent in inner.parents if parent.is_relative_to(root))]


def _fields(path: Path) -> dict[str, int]:
    """The lines ``name: number kB`` of a file in /proc; empty if the file does not exist."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    words = [line.replace(":", " ").split() for line in lines]
    return {word[0]: int(word[1]) for word in words if len(word) == 3 and word[2] == "kB"}


def _counts(path: Path) -> dict[str, int]:
    """The lines ``name number`` of a file; empty if the file does not exist."""
    try:
        words = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {word[0]: int(word[1]) for word in words if len(word) == 2 and word[1].isdigit()}


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
