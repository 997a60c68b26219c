"""How much memory there is to use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["forget_peak", "free_memory", "peak_memory"]

_CGROUP = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")
# What a group may take, what it has taken, and the count of its cached file pages: version 2, version 1.
_CGROUP_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def free_memory() -> int:
    """Bytes that this process may still take, as far as the system tells: 0 if it does not tell."""
    return max(0, min(_rests(), default=0))


def peak_memory() -> int | None:
    """The most bytes that this process has held at once, since :func:`forget_peak` if that could be done."""
    held = _fields(Path("/proc/self/status")).get("VmHWM")
    if held is not None:
        return 1024 * held
    if sys.platform == "win32":
        return None
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def forget_peak() -> bool:
    """Count the peak anew from now on; False if the system can't."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _rests() -> Iterator[int]:
    """What is left of the machine's memory, of its container's, and of the limits of the process."""
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
                # Pages of files that were read, such as a memory map's, are given back when there is need.
                yield limit - used + _counts(group / "memory.stat").get(cache, 0)
    if sys.platform != "win32":
        import resource

        for kind, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
            soft, _ = resource.getrlimit(kind)
            if soft != resource.RLIM_INFINITY:
                yield soft - 1024 * kilobytes.get(name, 0)


def _groups() -> list[Path]:
    """The control groups of this process and those that they lie in: version 2's, and version 1's for memory."""
    try:
        lines = _OWN_CGROUP.read_text().splitlines()
    except OSError:
        lines = []
    own, own_v1 = "", ""
    for line in lines:  # "0::/group" in version 2, "4:memory:/group" in version 1
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if line.startswith("0::"):
            own = group
        elif "memory" in controllers.split(","):
            own_v1 = group
    return [*_with_parents(_CGROUP, own), *_with_parents(_CGROUP / "memory", own_v1)]


def _with_parents(root: Path, group: str) -> list[Path]:
    """Inside a container a group's name may be the host's: only ``root`` is there then."""
    inner = root / group.lstrip("/")
    return [inner, *(parent for parent in inner.parents if parent.is_relative_to(root))]


def _fields(path: Path) -> dict[str, int]:
    """The lines ``name: number kB`` of a file of /proc; none if it is not there."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    words = [line.replace(":", " ").split() for line in lines]
    return {word[0]: int(word[1]) for word in words if len(word) == 3 and word[2] == "kB"}


def _counts(path: Path) -> dict[str, int]:
    """The lines ``name number`` of a file; none if it is not there."""
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
