"""Ways to run the command line, and pictures for it."""

import contextlib
import io
import os
import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image


def run_here(*arguments, cwd=None, **environment):
    """Run ``hashlearn ARGUMENTS`` in this process: to import NumPy in a hundred processes would take minutes."""
    from hashlearn.cli import main

    out, talk = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(talk),
        warnings.catch_warnings(),
    ):
        warnings.resetwarnings()  # as in a process of its own, where warnings are no errors
        warnings.simplefilter("ignore", DeprecationWarning)
        patch.setattr(sys, "argv", ["hashlearn", *map(str, arguments)])
        for name, value in {"COLUMNS": "200", "HASHLEARN_PROGRESS": "", **environment}.items():
            patch.setenv(name, value)
        if cwd is not None:
            patch.chdir(cwd)
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
    return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=talk.getvalue())


def run(*arguments, cwd=None, code=0):
    """The same, with the exit code that is expected."""
    done = run_here(*arguments, cwd=cwd)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def run_apart(*arguments, **environment):
    """Run ``hashlearn ARGUMENTS`` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "hashlearn.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": "200", **environment},
    )


def picture(seed, size=40):
    """Smooth random waves, of which no two are alike."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size] / size
    waves = sum(
        rng.normal() * np.sin(2 * np.pi * (rng.uniform(1, 6) * x + rng.uniform(1, 6) * y) + rng.uniform(0, 6))
        for _ in range(4)
    )
    return Image.fromarray(np.uint8(128 + 100 * waves / np.abs(waves).max()))
