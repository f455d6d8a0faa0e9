"""Stands in for vLLM's server: `python -m vllm.entrypoints.cli.main serve MODEL`."""

import argparse
import hashlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REPLIES = {
    "math": "Adding up, the answer is \\boxed{%d}.",
    "mmlu": "The answer is (%s).",
    "code": "```python\n%s    return %d\n```",
}


def reply(text: str, draw: int) -> str:
    """A plausible answer, the same to the same request."""
    if "def " in text:
        head = text[text.rindex("def ") :].split('"""')[0]
        return REPLIES["code"] % (head, draw % 3)
    if "\nB" in text or "B)" in text:
        return REPLIES["mmlu"] % "ABCD"[draw % 4]
    return REPLIES["math"] % (draw % 7)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        listed = {"id": options.served_model_name, "object": "model", "owned_by": "vllm"}
        listed |= {"max_model_len": options.max_model_len}
        self.send({"object": "list", "data": [listed]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert body["model"] == options.served_model_name
        text = "\n".join(message["content"] for message in body["messages"])
        digest = hashlib.sha256(f"{body.get('seed')} {body['model']} {text}".encode()).digest()
        content = reply(text, digest[0])
        usage = {"prompt_tokens": len(text) // 4, "completion_tokens": len(content) // 4}
        message = {"role": "assistant", "content": content}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "stop_reason": None}
        self.send(
            {
                "id": "chatcmpl-stub",
                "object": "chat.completion",
                "created": 0,
                "model": body["model"],
                "choices": [choice],
                "usage": usage | {"total_tokens": sum(usage.values())},
            }
        )

    def send(self, answer: dict) -> None:
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


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
    Server((options.host, options.port), Handler).serve_forever()
