"""What servers need of GPUs and how they share them: against vLLM's own arithmetic."""

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.real import PYTHON, ROOT
from ttsgraph.serving import needs
from ttsgraph.serving.memory import BLOCK, GIB, needs_of
from ttsgraph.serving.placement import HostedModel, servers_of
from ttsgraph.settings.profile import Profile, load_profile

CONFIGS = ROOT / "tests" / "data" / "configs"


def paper() -> Profile:
    return load_profile("paper", ROOT / "profiles")


Examine = Callable[..., dict[str, needs.Finding]]


@pytest.fixture
def examine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Examine:
    """What the doctor finds of memory on a machine with these GPUs, by subject."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))

    def examined(gpus: Sequence[float], profile: Profile) -> dict[str, needs.Finding]:
        monkeypatch.setattr(needs, "gpu_memory_gib", lambda: dict(enumerate(gpus)))
        found = needs.examine_servers(profile, tmp_path / "state", str(tmp_path / "no-python"))
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
from vllm.v1.core.kv_cache_utils import _check_enough_kv_cache_memory
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.worker.utils import request_memory
found = []
for case in json.load(sys.stdin):
    spec = FullAttentionSpec(block_size=case["block"], num_kv_heads=case["kv_heads"],
                             head_size=case["head_dim"], dtype=torch.bfloat16)
    parallel = Plain(decode_context_parallel_size=1, prefill_context_parallel_size=1)
    config = Plain(model_config=Plain(max_model_len=case["context"]), parallel_config=parallel)
    one = case["layers"] * spec.max_memory_usage_bytes(config)
    block = case["layers"] * spec.page_size_bytes
    snapshot = Plain(total_memory=case["total"], free_memory=case["free"], device_="cuda:0")
    try:
        requested = request_memory(snapshot, Plain(gpu_memory_utilization=case["share"]))
        available = requested - case["rest"] - block
        _check_enough_kv_cache_memory(available, lambda: one, case["context"], lambda left: 0)
        why = ""
    except ValueError as error:
        requested, why = 0, str(error)
    found.append([one, block, requested, why])
print(json.dumps(found))
"""


@pytest.mark.models
@pytest.mark.slow
def test_vllm_comes_to_the_same_figures_and_refuses_what_does_not_fit(tmp_path, examine):
    """Of the paper's models, on each of the made-up machines: asked of the vLLM that is here."""
    if not PYTHON.exists():
        pytest.skip(f"no serve environment: {PYTHON} is missing (make setup)")
    profile = paper()
    models = {}
    for name, model in profile.hosted.items():
        wanted = needs_of(model, profile.engine)
        models[name] = HostedModel(name, needs=wanted, load=model.non_embedding)
    cases = []
    fits = []
    asked = []
    for gpus in ({0: 80.0}, {0: 80.0, 1: 80.0}, {0: 24.0}):
        found = examine(list(gpus.values()), profile)
        fits += [one.ok for one in found.values() if one.subject.startswith("server ")]
        total = int(gpus[0] * GIB)
        for server in servers_of(models, gpus):
            model = profile.pool[server.model]
            each = models[server.model].needs[len(server.gpus)]
            asked.append(each)
            cases.append(
                {
                    **{"block": BLOCK, "layers": model.layers, "total": total, "free": total},
                    **{"kv_heads": model.serve.kv_heads, "head_dim": model.serve.head_dim},
                    "context": model.serve.max_model_len or profile.engine.max_model_len,
                    "share": server.share,
                    "rest": int((each.weights + each.running) * GIB),
                }
            )
    command = [str(PYTHON), "-c", VLLM]
    more = {"capture_output": True, "text": True, "check": True, "cwd": tmp_path}
    done = subprocess.run(command, input=json.dumps(cases), **more)
    answers = json.loads(done.stdout.splitlines()[-1])
    for answer, each, case, ok in zip(answers, asked, cases, fits, strict=True):
        one, block, requested, why = answer
        assert (one + block) / GIB == pytest.approx(each.cache, rel=1e-9)
        assert ok == (why == ""), why
        assert not ok or requested == pytest.approx(case["share"] * case["total"], rel=1e-6)
    assert sorted(set(fits)) == [False, True]


@pytest.mark.parametrize("name", paper().pool)
def test_the_papers_profile_has_the_heads_of_its_configurations(name):
    serve = paper().pool[name].serve
    data = json.loads((CONFIGS / f"{name}.json").read_text())
    assert serve.kv_heads == data["num_key_value_heads"]
    head_dim = data.get("head_dim") or data["hidden_size"] // data["num_attention_heads"]
    assert serve.head_dim == head_dim
