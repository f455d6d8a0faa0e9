"""Stub of an OpenAI-compatible server with a fixed latency, in a separate process, so that it takes
no time from the measured process.

Its answer is constant or, with `echo`, the name in the request's messages, such as `request-17`.
"""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from lab import ROOT

MODEL = "stub"
MODELS = {
    "object": "list",
    "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "stub"}],
}


def completion(text: str) -> web.Response:
    """Return a chat completion with this text."""
    message = {"role": "assistant", "content": text}
    data = {
        "id": "stub",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55},
    }
    return web.json_response(data)


async def serve(delay_s: float, echo: bool) -> None:
    """Serve on a free port, and print the port; end when the parent process closes the pipe or
    dies.
    """

    async def models(_request: web.Request) -> web.Response:
        return web.json_response(MODELS)

    async def complete(request: web.Request) -> web.Response:
        names = set(re.findall(r"request-\d+", await request.text()))
        await asyncio.sleep(delay_s)
        if not echo:
            return completion("The answer is 7")
        return completion(names.pop() if len(names) == 1 else f"expected one name, found {names}")

    app = web.Application()
    app.add_routes([web.get("/v1/models", models), web.post("/v1/chat/completions", complete)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


@contextmanager
def stub_server(delay_s: float, echo: bool = False) -> Iterator[str]:
    """Run a stub server during the context; yield its base URL."""
    command = [sys.executable, "-m", "lab.benchmarks.stub", str(delay_s), *["echo"] * echo]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.communicate()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]), "echo" in sys.argv))
