"""Count a model's parameters from its configuration alone. Runs in the serve environment, which has
transformers and torch.

    python count_parameters.py FOLDER_OR_CONFIG_JSON [...]

Prints one JSON object a model: layers, hidden, total and non_embedding. No weights are read or
made: the model is built on torch's meta device, where tensors have shapes only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path


def facts(path: Path) -> dict[str, int]:
    """Layers, hidden size, parameters, and those that are neither input embeddings nor head."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    if path.is_dir():
        path = path / "config.json"
    data = json.loads(path.read_text())
    # A quantised checkpoint is the same network; its packed weights are of no interest here.
    data.pop("quantization_config", None)
    config = AutoConfig.for_model(data.pop("model_type"), **data)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    inputs = model.get_input_embeddings().weight
    outputs = model.get_output_embeddings().weight
    embeddings = inputs.numel() + (0 if outputs is inputs else outputs.numel())
    total = sum(parameter.numel() for parameter in model.parameters())
    return {
        "layers": config.num_hidden_layers,
        "hidden": config.hidden_size,
        "total": total,
        "non_embedding": total - embeddings,
    }


def main(arguments: Sequence[str]) -> int:
    """Print the facts of each model; returns the exit status."""
    for argument in arguments:
        print(json.dumps(facts(Path(argument))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
