"""What the doctor says of a profile, on this machine and on machines that are described to it."""

from pathlib import Path

import pytest

from ttsgraph.runtime import doctor
from ttsgraph.serving import needs
from ttsgraph.settings.profile import load_profile

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "tests" / "data" / "configs"


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without GPUs, weights, tokens and serve environment."""
    for name in ("HF_TOKEN", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr(needs, "gpu_memory_gib", lambda: {})
    return tmp_path


def examine(
    folder: Path, profile: str = "paper", profiles: Path = ROOT / "profiles"
) -> list[needs.Finding]:
    known = load_profile(profile, profiles)
    return doctor.examine(known, folder / "state", str(folder / "no-python"))


def by_subject(found: list[needs.Finding]) -> dict[str, doctor.Finding]:
    return {finding.subject: finding for finding in found}


def test_a_bare_machine_hears_all_that_is_missing_and_how_to_get_it(nowhere: Path) -> None:
    found = by_subject(examine(nowhere))
    assert {name for name in found if found[name].ok} <= {"isolation of programs"}
    assert "make setup" in found["serve environment"].advice
    assert found["GPU"].found == "none found"
    weights = found["weights of llama-3.1-8b"].advice
    assert "hf download meta-llama/Llama-3.1-8B-Instruct --revision 0e9e39f249a1" in weights
    assert "15.0 GiB" in weights
    assert "HF_TOKEN" in found["hub token"].advice
    assert "cais/mmlu" in found["questions of mmlu"].advice


def test_what_is_there_is_found(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "value")
    monkeypatch.setattr(needs, "gpu_memory_gib", lambda: {0: 80.0})
    model = nowhere / "hf" / "hub" / "models--meta-llama--Llama-3.2-1B-Instruct"
    snapshot = model / "snapshots" / "9213176726f574b556790deb65791e0c5aa438b6"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text((CONFIGS / "llama-3.2-1b.json").read_text())
    found = by_subject(examine(nowhere))
    assert found["weights of llama-3.2-1b"].ok
    assert not found["weights of llama-3.2-3b"].ok
    assert found["hub token"].ok
    assert found["server llama-3.2-1b"].ok
    assert "(GPU 0)" in found["server llama-3.2-1b"].found
