"""The command line: one module per group of commands. A command parses, calls the library and prints."""

from hashlearn.cli.app import main

__all__ = ["main"]
