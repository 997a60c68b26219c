"""The command line in this process: a hundred processes of its own would take minutes to import NumPy."""

import contextlib
import io
import sys
import warnings
from types import SimpleNamespace

import pytest


def run_here(*arguments, cwd=None, **environment):
    """What ``hashlearn ARGUMENTS`` prints, and its exit code."""
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
        for name, value in {"COLUMNS": "200", **environment}.items():
            patch.setenv(name, value)
        if cwd is not None:
            patch.chdir(cwd)
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
    return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=talk.getvalue())
