"""A cache of its own for each test, a web server on this machine, and an npm that is a script."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder; no data set's environment variable is set."""
    for variable in list(os.environ):
        if variable.startswith("HASHLEARN_"):
            monkeypatch.delenv(variable)
    folder = tmp_path / "cache"
    monkeypatch.setenv("HASHLEARN_CACHE", str(folder))
    return folder


class Web:
    """Serves ``files[path]``; announces ``announced[path]`` bytes where that is set. Remembers ``asked``."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.files: dict[str, bytes] = {}
        self.announced: dict[str, int] = {}
        self.asked: list[str] = []


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append(self.path)
            content = served.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(served.announced.get(self.path, len(content))))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Web(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


class Npm:
    """``npm pack`` leaves a copy of ``tarball``, or fails as if there were no network. Remembers ``asked``."""

    def __init__(self, folder: Path) -> None:
        self.tarball = folder / "package.tar"
        self._log = folder / "asked"

    @property
    def asked(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Npm:
    folder = tmp_path / "npm"
    folder.mkdir()
    fake = Npm(folder)
    script = folder / "npm"
    script.write_text(
        f"#!{sys.executable} -I\n"
        "import pathlib, shutil, sys\n"
        f"with open({str(fake._log)!r}, 'a') as log:\n"
        "    log.write(' '.join(sys.argv[1:3]) + '\\n')\n"
        f"tarball = pathlib.Path({str(fake.tarball)!r})\n"
        "if not tarball.exists():\n"
        "    sys.exit('npm error code ENOTFOUND\\nnpm error network no such host')\n"
        "shutil.copy(tarball, sys.argv[2].replace('@', '-') + '.tgz')\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return fake
