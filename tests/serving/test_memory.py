"""What servers need of GPUs and how they share them: against vLLM's own arithmetic."""

import json
from collections.abc import Sequence

import pytest

from tests.support.processes import said_by
from tests.support.real import PYTHON, ROOT
from ttsgraph.serving import needs
from ttsgraph.serving.memory import BLOCK, GIB, needs_of
from ttsgraph.settings.profile import Profile, load_profile

CONFIGS = ROOT / "tests" / "data" / "configs"


def paper() -> Profile:
    return load_profile("paper", ROOT / "profiles")


@pytest.fixture
def examine(monkeypatch, tmp_path):
    """What the doctor finds of memory on a machine with these GPUs, by subject."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))

    def examined(gpus: Sequence[float], profile: Profile) -> dict[str, needs.Finding]:
        monkeypatch.setattr(needs, "gpu_memory_gib", lambda: dict(enumerate(gpus)))
        found = needs.examine_servers(profile, tmp_path / "state")
        subjects = ("server ", "GPU", "memory")
        return {one.subject: one for one in found if one.subject.startswith(subjects)}

    return examined


MACHINES = {
    # GPUs, whether all fit, and what is said of them
    "large": ([80.0], "ok", "15.0 GiB weights + 2.0 GiB cache", "the cache holds"),
    "two": ([80.0, 80.0], "ok", "(GPU 0)", "(GPU 1)"),
    "small": ([24.0], "NO", "do not fit a share of 6.2 GiB", "lower serve.max_model_len"),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_each_server_hears_what_it_has_on_a_machine_or_why_it_does_not_fit(examine, machine):
    gpus, fit, *words = MACHINES[machine]
    found = examine(gpus, paper()).values()
    told = [f"{'ok' if one.ok else 'NO'} {one.subject}: {one.found}; {one.advice}" for one in found]
    assert {line[:2] for line in told} == {fit}
    for part in words:
        assert part in "\n".join(told)


def test_what_is_not_known_is_named_and_heads_have_an_upper_bound(examine):
    profile = paper()
    model = profile.pool["llama-3.1-8b"]
    without = model.model_copy(update={"layers": None})
    found = examine([80.0], profile.model_copy(update={"pool": {"llama-3.1-8b": without}}))
    assert "'llama-3.1-8b': expected total, non_embedding, layers" in found["memory"].found
    serve = model.serve.model_copy(update={"kv_heads": None, "head_dim": None})
    wide = needs_of(model.model_copy(update={"serve": serve}), profile.engine)
    for gpus, need in needs_of(model, profile.engine).items():
        assert wide[gpus].cache == 4 * need.cache  # as without grouped queries


VLLM = """
import json, sys
from types import SimpleNamespace as Plain
import torch
from vllm.v1.kv_cache_interface import FullAttentionSpec
found = []
for layers, context, sizes in json.loads(sys.argv[1]):
    spec = FullAttentionSpec(**sizes, dtype=torch.bfloat16)
    parallel = Plain(decode_context_parallel_size=1, prefill_context_parallel_size=1)
    config = Plain(model_config=Plain(max_model_len=context), parallel_config=parallel)
    found.append(layers * (spec.max_memory_usage_bytes(config) + spec.page_size_bytes))
print(json.dumps(found))
"""


@pytest.mark.models
@pytest.mark.slow
def test_vllm_comes_to_the_same_cache_for_each_of_the_papers_models(tmp_path):
    """Asked of the vLLM that is here: one request of the longest context, and a block."""
    if not PYTHON.exists():
        pytest.skip(f"no serve environment: {PYTHON} is missing (make setup)")
    profile = paper()
    cases, wanted = [], []
    for model in profile.hosted.values():
        heads = {"num_kv_heads": model.serve.kv_heads, "head_size": model.serve.head_dim}
        context = model.serve.max_model_len or profile.engine.max_model_len
        cases.append((model.layers, context, {"block_size": BLOCK} | heads))
        wanted.append(needs_of(model, profile.engine)[1].cache * GIB)
    said = said_by([str(PYTHON), "-c", VLLM, json.dumps(cases)], tmp_path)
    assert json.loads(said.splitlines()[-1]) == pytest.approx(wanted)


@pytest.mark.parametrize("name", paper().pool)
def test_the_papers_profile_has_the_heads_of_its_configurations(name):
    serve = paper().pool[name].serve
    data = json.loads((CONFIGS / f"{name}.json").read_text())
    assert serve.kv_heads == data["num_key_value_heads"]
    head_dim = data.get("head_dim") or data["hidden_size"] // data["num_attention_heads"]
    assert serve.head_dim == head_dim
