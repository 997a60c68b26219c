"""The application: its commands, the options of all of them, and how errors are reported.

Only light modules are imported at the top of this package, so that ``--help`` answers at once.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import warnings
from typing import Annotated

import typer
from typer.core import TyperGroup

from hashlearn.cli import collections, data, evaluation, experiments, models, render


class _Group(TyperGroup):
    """Accepts ``--quiet`` after the name of the command, too."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override, unused-ignore]
        end = args.index("--") if "--" in args else len(args)
        quiet = [word for word in args[:end] if word in ("--quiet", "-q")]
        rest = [word for word in args[:end] if word not in quiet]
        return super().parse_args(ctx, [*quiet, *rest, *args[end:]])


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    # So that an example stays on one line, to be copied, if the terminal is wide enough.
    context_settings={"max_content_width": 140},
    help="Learn compact binary codes for vectors and images, and search them.\n\n"
    "Example: hashlearn fit digits --method itq --bits 32 --out digits.model && "
    "hashlearn evaluate digits.model --dataset digits",
)
for module in (models, evaluation, collections, experiments):
    for command in module.COMMANDS:
        app.command()(command)
app.add_typer(data.app, name="data")


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress and no notes on stderr; warnings and errors remain.")
    ] = False,
) -> None:
    render.set_quiet(quiet)
    if version:
        from importlib.metadata import version as installed_version

        print(f"hashlearn {installed_version('hashlearn')}")
        raise typer.Exit


class _LogHandler(logging.Handler):
    """Prints each record of the library's log as one line."""

    def emit(self, record: logging.LogRecord) -> None:
        render.warn(record.getMessage())


def main() -> None:
    """Run the command line. An error that the user can fix is one line on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character is no reason to fail
    warnings.showwarning = lambda message, *_: render.warn(str(message))
    logger, handler = logging.getLogger("hashlearn"), _LogHandler(logging.WARNING)
    logger.addHandler(handler)
    try:
        app()
    except (ValueError, OSError, ImportError, MemoryError, RecursionError) as error:
        if os.environ.get("HASHLEARN_DEBUG"):
            raise
        render.fail(f"error: {' '.join(str(error).split()) or type(error).__name__}")
        sys.exit(2)
    except (KeyboardInterrupt, SystemExit) as end:
        # Typer turns an interrupt into an exit.
        if isinstance(end, SystemExit) and end.code != 130:
            raise
        render.fail("interrupted")
        sys.exit(130)
    finally:
        logger.removeHandler(handler)
