"""Stands in for vLLM's server: `python -m vllm.entrypoints.cli.main serve MODEL`."""

import argparse
import hashlib
import json
import threading

from .stub_server import StubServer, answered, serve


class StubVllm(StubServer):
    """Gives plausible answers, the same to the same request."""

    def completion(self, body, count):
        text = "\n".join(message["content"] for message in body["messages"])
        (draw, *_) = hashlib.sha256(f"{body.get('seed')} {self.models} {text}".encode()).digest()
        if "def " in text:
            head = text[text.rindex("def ") :].split('"""')[0]
            said = f"```python\n{head}    return {draw % 3}\n```"
        else:
            said = f"Adding up, the answer is \\boxed{{{draw % 7}}}."
        return answered(said, body["model"], count, len(text) // 4, len(said) // 4)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model")
    for flag in ("--served-model-name", "--host", "--revision"):
        parser.add_argument(flag, required=True)
    for flag in ("--port", "--max-model-len", "--max-num-seqs", "--tensor-parallel-size"):
        parser.add_argument(flag, type=int, required=True)
    parser.add_argument("--gpu-memory-utilization", type=float, required=True)
    parser.add_argument("--disable-uvicorn-access-log", action="store_true")
    options = parser.parse_args()
    stub = StubVllm((options.served_model_name,))
    entry = {"id": options.served_model_name, "object": "model", "owned_by": "vllm"}
    listed = {"object": "list", "data": [entry | {"max_model_len": options.max_model_len}]}
    stub.lists = lambda path, headers: (200, {}, json.dumps(listed))
    with serve(stub, options.port):
        threading.Event().wait()
