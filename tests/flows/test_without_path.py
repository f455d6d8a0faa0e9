"""Servers and tools are started as this Python's modules, wherever the PATH leads."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from pathlib import Path

import pytest

from ttsgraph_flows import repro


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))


@pytest.mark.usefixtures("nowhere")
def test_a_prefect_server_needs_no_path(tmp_path):
    with (
        repro.prefect_server(tmp_path) as url,
        urllib.request.urlopen(f"{url}/health", timeout=60) as answer,
    ):
        assert answer.status == 200


@pytest.mark.usefixtures("nowhere")
def test_dvc_needs_no_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    subprocess.run([*repro.DVC, "init", "--no-scm", "-q"], check=True)
    (tmp_path / "dvc.yaml").write_text("stages:\n  one: {cmd: echo, deps: [file]}\n")
    (tmp_path / "file").write_text("x")
    monkeypatch.setattr(repro, "require_sections", lambda profile: None)
    given = {"profile": "mine", "tasks": ["math"], "methods": ["random"], "seed": 0}
    (tmp_path / "params.yaml").write_text(json.dumps(given))
    assert list(repro.changed_stages()) == ["one"]
