"""The paper's models with random weights: their real configurations at small shapes, on the CPU.

No weights and no GPU are needed: what is shown is that each configuration makes a model that
generates, and that its weights and its cache take what pipeline/ttsgraph/serving/memory.py says.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass

import pytest

from tests.support.real import PYTHON, ROOT
from ttsgraph.serving.memory import BLOCK, GIB, ModelShape, need
from ttsgraph.settings.profile import load_profile

pytestmark = [pytest.mark.models, pytest.mark.slow]
CONFIGS = ROOT / "tests" / "data" / "configs"
MODELS = tuple(load_profile("paper", ROOT / "profiles").pool)

PROGRAM = """
import json, sys
import torch
from transformers import AutoConfig, AutoModelForCausalLM
torch.manual_seed(0)
for path in sys.argv[1:]:
    data = json.load(open(path))
    small = {"hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 6, "head_dim": 16,
             "vocab_size": 512, "max_position_embeddings": 256}
    config = AutoConfig.for_model(data.pop("model_type"), **data | small)
    config.eos_token_id = None
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    prompt = torch.randint(1, 512, (2, 40))
    done = model.generate(prompt, max_new_tokens=9, do_sample=True, return_dict_in_generate=True,
                          attention_mask=torch.ones_like(prompt), pad_token_id=0)
    layers = done.past_key_values.layers
    kept = [held for layer in layers for held in (layer.keys, layer.values)]
    cached = sum(t.numel() * t.element_size() for t in kept)
    inputs, outputs = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    embeddings = inputs.numel() + (0 if outputs is inputs else outputs.numel())
    total = sum(p.numel() for p in model.parameters())
    print(json.dumps({
        "made": int(done.sequences.shape[1]) - 40, "tokens": 2 * int(layers[0].keys.shape[-2]),
        "cached": cached, "weights": sum(p.numel() * p.element_size() for p in model.parameters()),
        "kv_heads": config.num_key_value_heads, "total": total, "outside": total - embeddings,
        "finite": bool(torch.isfinite(model(prompt).logits).all())}))
"""


@dataclass(frozen=True)
class Run:
    """What came of one small model."""

    made: int
    tokens: int
    cached: int
    weights: int
    kv_heads: int
    total: int
    outside: int
    finite: bool

    @property
    def shape(self) -> ModelShape:
        return ModelShape(self.total, self.outside, 6, 96, self.kv_heads, 16)


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    if not PYTHON.exists():
        pytest.skip(f"no serve environment: {PYTHON} is missing (make setup)")
    paths = [str(CONFIGS / f"{name}.json") for name in MODELS]
    done = subprocess.run(
        [str(PYTHON), "-c", PROGRAM, *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return {name: Run(**json.loads(line)) for name, line in zip(MODELS, lines, strict=True)}


@pytest.mark.parametrize("name", MODELS)
def test_its_configuration_makes_a_model_that_generates(runs, name):
    assert runs[name].made == 9
    assert runs[name].finite


@pytest.mark.parametrize("name", MODELS)
def test_weights_and_cache_take_what_the_arithmetic_says(runs, name):
    run = runs[name]
    assert run.cached == run.tokens * run.shape.token_bytes()
    wanted = need(run.shape, 256, 2)
    assert wanted.weights * GIB == pytest.approx(run.weights)
    assert wanted.cache * GIB == (256 + BLOCK) * run.cached / run.tokens


@pytest.mark.parametrize("name", MODELS)
def test_the_profile_has_the_heads_of_its_configuration(name):
    serve = load_profile("paper", ROOT / "profiles").pool[name].serve
    data = json.loads((CONFIGS / f"{name}.json").read_text())
    assert serve.kv_heads == data["num_key_value_heads"]
    head_dim = data.get("head_dim") or data["hidden_size"] // data["num_attention_heads"]
    assert serve.head_dim == head_dim
