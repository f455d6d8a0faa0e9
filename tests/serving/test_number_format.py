"""The number format of servers on the CPU, by the processor's flags or by measuring."""

import json
import sys
from pathlib import Path

import pytest

from ttsgraph.serving.environment import number_format
from ttsgraph.serving.servers import Hosted, server_specs

AVX2 = "model name : A\nflags : fpu fma avx2\n"


def told(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "format_"),
    [
        (AVX2, "float32"),
        ("model name : B\nflags : avx2 avx512f avx512_bf16\n", "bfloat16"),
        ("flags : avx512f amx_bf16 amx_tile\n", "bfloat16"),
        ("CPU part : 0xd4f\nFeatures : fp asimd bf16 i8mm\n", "bfloat16"),
        ("Features : fp asimd\n", "float32"),
    ],
)
def test_flags_decide_where_they_can(tmp_path: Path, text: str, format_: str) -> None:
    found = number_format("no such python", tmp_path, told(tmp_path, text))
    assert found.name == format_
    assert found.why
    assert not list(tmp_path.glob("*.json"))  # nothing was measured


@pytest.mark.parametrize(("bfloat16", "faster"), [(0.5, "bfloat16"), (2.0, "float32")])
def test_where_flags_do_not_decide_the_faster_one_is_measured_once(
    tmp_path: Path, bfloat16: float, faster: str
) -> None:
    timing = tmp_path / "python"
    seconds = json.dumps({"bfloat16": bfloat16, "float32": 1.0})
    timing.write_text(f"#!{sys.executable}\nprint('{seconds}')\n")
    timing.chmod(0o755)
    flags = told(tmp_path, "model name : C\nflags : avx2 avx512f\n")
    found = number_format(str(timing), tmp_path, flags)
    assert found.name == faster
    timing.unlink()
    assert number_format(str(timing), tmp_path, flags) == found
    other = told(tmp_path, "model name : D\nflags : avx2 avx512f\n")
    assert number_format(str(timing), tmp_path, other).name == "float32"  # can't measure


def test_servers_on_the_cpu_get_it_and_those_on_gpus_their_weights_own(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(AVX2)
    chosen = number_format("", tmp_path, tmp_path / "cpuinfo")
    hosted = {"m": Hosted("folder")}
    (spec,) = server_specs("vllm", hosted, log_dir=tmp_path, dtype=chosen)
    assert spec.command[spec.command.index("--dtype") + 1] == "float32"
    assert "float32" in spec.note
    (spec,) = server_specs("vllm", hosted, log_dir=tmp_path, gpus={0: 24.0})
    assert "--dtype" not in spec.command
