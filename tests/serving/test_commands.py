"""Commands, ports and environments of servers, and the number format on a processor."""

from types import SimpleNamespace
from typing import Any

import pytest

from ttsgraph.pool.engine import EngineSettings, ServeSettings
from ttsgraph.serving.environment import number_format
from ttsgraph.serving.memory import MemoryNeed
from ttsgraph.serving.placement import HostedModel
from ttsgraph.serving.servers import ServerSpec, server_specs
from ttsgraph.serving.transformers_server import request_sampling, sampling_config, too_long

VLLM = EngineSettings(kind="vllm")
NEED = MemoryNeed(2.0, 1.0, 0.5)


def flag(spec: ServerSpec, name: str) -> str:
    return spec.command[spec.command.index(name) + 1]


def test_servers_on_the_cpu_have_ports_and_logs_and_stay_offline(tmp_path):
    models = {"a": HostedModel("models/a"), "b/c": HostedModel("models/b")}
    specs = server_specs(VLLM, models, tmp_path)
    assert len({spec.port for spec in specs} - {0}) == 2
    assert specs[1].log == tmp_path / "b--c.log"
    for spec in specs:
        assert {"--enforce-eager", "--block-size", "--served-model-name"} <= set(spec.command)
        assert flag(spec, "--dtype") == number_format()[0]
        assert spec.env["OMP_WAIT_POLICY"] == "passive"
        for name in ("HF_HUB_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"):
            assert spec.env[name] == "1"
    assert server_specs(VLLM, {}, tmp_path) == ()
    for has_command in (True, False):
        specs = server_specs(VLLM, models, tmp_path, has_command=has_command)
        assert {"serve" in spec.command for spec in specs} == {has_command}
        assert {"--model" in spec.command for spec in specs} == {not has_command}


def test_a_transformers_server_has_bounded_memory(tmp_path):
    models = {
        "a": HostedModel("models/a"),
        "b": HostedModel("models/b", ServeSettings(max_model_len=512)),
    }
    engine = EngineSettings(kind="transformers", python="env/bin/python")
    spec, short = server_specs(engine, models, tmp_path)
    assert spec.command[:2] == ("env/bin/python", "-P")
    assert spec.command[3:5] == ("2048", "models/a")
    assert flag(spec, "--cb-num-blocks") == "1024"
    assert short.command[3:5] == ("512", "models/b")
    assert spec.env["OMP_WAIT_POLICY"] == "passive"


def test_replicas_and_gpus_have_servers_of_their_own(tmp_path):
    models = {
        "big": HostedModel(
            "b", ServeSettings(replicas=1, extra_args=("--x",)), needs={2: NEED}, from_hub=True
        ),
        "small": HostedModel("s", ServeSettings(replicas=2), "rev1", {1: NEED}),
    }
    big, *small = server_specs(VLLM, models, tmp_path, dict.fromkeys(range(4), 24.0))
    assert [spec.name for spec in (big, *small)] == ["big", "small-1", "small-2"]
    assert [spec.model for spec in small] == ["small", "small"]
    assert [spec.env["CUDA_VISIBLE_DEVICES"] for spec in (big, *small)] == ["0,1", "2", "3"]
    assert big.command[-1] == "--x"
    assert not {"--enforce-eager", "--dtype"} & set(big.command)
    assert flag(big, "--tensor-parallel-size") == "2"
    assert flag(small[0], "--gpu-memory-utilization") == "0.9"
    assert flag(small[0], "--max-num-seqs") == str(VLLM.concurrency)
    assert flag(small[0], "--revision") == "rev1"
    assert {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} & set(big.env) == set()
    assert {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} <= set(small[0].env)
    assert ("HF_TOKEN" in big.secrets, small[0].secrets) == (True, ())


@pytest.mark.parametrize("flags", ["avx2 avx512f avx512_bf16", "fp asimd bf16 i8mm"])
def test_the_processor_decides_the_number_format(tmp_path, flags):
    info = tmp_path / "cpuinfo"
    assert number_format(info)[0] == "float32"
    info.write_text(f"model name : B\nflags : {flags}\n")
    assert number_format(info)[0] == "bfloat16"
    assert number_format(info)[1] in [f"the processor has {flag}" for flag in flags.split()]


def config(**own: Any) -> SimpleNamespace:
    usual = dict.fromkeys(("do_sample", "temperature", "top_p", "top_k"))
    return SimpleNamespace(**(usual | {"max_new_tokens": 8} | own))


GREEDY = {"temperature": 0.0, "top_p": 0.5}
OWN = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "do_sample": False}
SAMPLED = {
    "sampled": ({"temperature": 0.9}, {"temperature": 0.9}, (True, 0.9, 1.0, 0)),
    "greedy": (GREEDY, GREEDY, (False, None, 0.5, 0)),
    "nothing said": ({}, {}, (True, 1.0, 1.0, 0)),
    "the model's own": (OWN, {}, (True, 0.6, 0.95, 20)),
}


@pytest.mark.parametrize("case", SAMPLED)
def test_a_request_is_sampled_as_it_asks(case):
    own, body, expected = SAMPLED[case]
    found = sampling_config(config(**own), body)
    assert (found.do_sample, found.temperature, found.top_p, found.top_k) == expected


def test_at_temperature_0_one_token_is_left_where_two_are_as_likely():
    greedy = sampling_config(config(temperature=0.0), {"temperature": 0.0})
    # What is sampled from are the likeliest tokens that make up this share: half of it is too much.
    assert 0 < request_sampling(greedy)["top_p"] < 0.001
    assert 0 < request_sampling(greedy)["temperature"] < 0.001
    drawn = sampling_config(config(temperature=0.9, top_p=0.8), {"temperature": 0.9, "top_p": 0.8})
    assert request_sampling(drawn) == {"temperature": 0.9, "top_p": 0.8}


def test_a_prompt_is_refused_if_its_answer_would_not_fit():
    assert too_long([1] * 92, config(), 100) is None
    said = "context length is 100 tokens, but the prompt has 93 and 8 are to be generated"
    assert too_long(SimpleNamespace(shape=(1, 93)), config(), 100) == f"maximum {said}"
