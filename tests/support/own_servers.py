"""Stubs of servers that people have, with their habits, as their documentation has it."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from tests.support.habits import openai_refusal
from tests.support.stub_server import Answer, StubServer

KEY = "sesame-sesame-sesame"


class OwnServer(StubServer):
    """One server. `root` stands before /chat/completions in its paths, `model` is what it has."""

    root: ClassVar = "/v1"
    model: ClassVar = "served"
    refused: ClassVar[tuple[str, ...]] = ()
    """Parameters that it takes none of."""

    def __init__(self) -> None:
        super().__init__((self.model,), skill=1.0)
        self.misbehave = self.habit
        self.lists = self.listed

    def habit(self, count: int, body: dict[str, Any]) -> Answer | None:
        path, _, query = self.paths[-1].partition("?")
        if path != f"{self.root}/chat/completions":
            return self.nothing_there(path)
        if (answer := self.not_let_in(self.headers[-1], query)) is not None:
            return answer
        if body["model"] != self.model:
            return self.no_model(body["model"])
        name = next((name for name in self.refused if name in body), None)
        return None if name is None else self.refuses(name)

    def listed(self, path: str, headers: dict[str, str]) -> Answer:
        path, _, query = path.partition("?")
        if path != f"{self.root}/models":
            return self.nothing_there(path)
        if (answer := self.not_let_in(headers, query)) is not None:
            return answer
        return 200, {}, json.dumps({"object": "list", "data": [self.entry()]})

    def completion(self, body: dict[str, Any], count: int) -> dict[str, Any]:
        last = body["messages"][-1]  # below what a system message said, where that was put there
        asked = last | {"content": last["content"].splitlines()[-1]}
        return super().completion(body | {"messages": [asked]}, count)

    def entry(self) -> dict[str, Any]:
        return {"id": self.model, "object": "model", "created": 0, "owned_by": "stub"}

    def not_let_in(self, headers: dict[str, str], query: str) -> Answer | None:
        """What it says to a wrong key; most servers of one's own ask for none."""
        return None

    def nothing_there(self, path: str) -> Answer:
        return 404, {}, '{"detail": "Not Found"}'

    def no_model(self, name: str) -> Answer:
        """What it says of a model that it lacks."""
        raise NotImplementedError

    def refuses(self, name: str) -> Answer:
        """What it says of a parameter that it does not take."""
        raise NotImplementedError


def error(status: int, message: str, **more: Any) -> Answer:
    return status, {}, json.dumps({"error": {"message": message, **more}})


def wants_bearer(headers: dict[str, str]) -> bool:
    return headers.get("authorization") != f"Bearer {KEY}"


class Ollama(OwnServer):
    """No key; ignores what it does not know; thoughts are in `reasoning`."""

    model: ClassVar = "llama3.2:1b"

    def completion(self, body: dict[str, Any], count: int) -> dict[str, Any]:
        answer = super().completion(body, count)
        answer["choices"][0]["message"]["reasoning"] = "Let me add."
        return answer

    def entry(self) -> dict[str, Any]:
        return super().entry() | {"owned_by": "library"}

    def no_model(self, name: str) -> Answer:
        return error(
            404, f"model '{name}' not found", type="not_found_error", param=None, code=None
        )

    def nothing_there(self, path: str) -> Answer:
        return 404, {"Content-Type": "text/plain"}, "404 page not found"


class OpenRouter(OwnServer):
    """Lists prices as $ a token to anybody; its errors have the status as a number, in 200 too."""

    root: ClassVar = "/api/v1"
    model: ClassVar = "meta-llama/llama-3.1-8b-instruct"

    def listed(self, path: str, headers: dict[str, str]) -> Answer:
        return super().listed(path, {"authorization": f"Bearer {KEY}"})

    def entry(self) -> dict[str, Any]:
        pricing = {"prompt": "0.00000002", "completion": "0.00000003", "request": "0", "image": "0"}
        return {"id": self.model, "name": "Llama", "context_length": 16384, "pricing": pricing}

    def not_let_in(self, headers: dict[str, str], query: str) -> Answer | None:
        return error(401, "No auth credentials found", code=401) if wants_bearer(headers) else None

    def no_model(self, name: str) -> Answer:
        return error(400, f"{name} is not a valid model ID", code=400)

    def nothing_there(self, path: str) -> Answer:
        return 404, {"Content-Type": "text/html"}, "<!DOCTYPE html><html>Not Found</html>"

    def completion(self, body: dict[str, Any], count: int) -> dict[str, Any]:
        if count == 1:  # a provider behind it has trouble, which another attempt does not meet
            return {"error": {"message": "Provider returned error", "code": 502}}
        return super().completion(body, count)


class Vllm(OwnServer):
    """Knows seeds; a chat template without a system role refuses it."""

    model: ClassVar = "google/gemma-1.1-2b-it"

    def entry(self) -> dict[str, Any]:
        return super().entry() | {"owned_by": "vllm", "root": self.model, "max_model_len": 8192}

    def not_let_in(self, headers: dict[str, str], query: str) -> Answer | None:
        return (401, {}, '{"error":"Unauthorized"}') if wants_bearer(headers) else None

    def no_model(self, name: str) -> Answer:
        words = f"The model `{name}` does not exist."
        return error(404, words, type="NotFoundError", param="model", code=404)

    def habit(self, count: int, body: dict[str, Any]) -> Answer | None:
        answer = super().habit(count, body)
        if answer is None and any(message["role"] == "system" for message in body["messages"]):
            words = "System role not supported"
            return error(400, words, type="BadRequestError", param=None, code=400)
        return answer


class LmStudio(OwnServer):
    """Asks for no key; says 200 and an error where it has nothing, and errors as plain text."""

    model: ClassVar = "qwen2.5-7b-instruct"

    def no_model(self, name: str) -> Answer:
        words = f'Model "{name}" not found. Use `lms ls` to see the models that are downloaded.'
        return 404, {}, json.dumps({"error": words})

    def nothing_there(self, path: str) -> Answer:
        return 200, {}, json.dumps({"error": f"Unexpected endpoint or method. (POST {path})"})


class LiteLlm(OwnServer):
    """Refuses what the provider behind it does not take; prices are at /model/info."""

    model: ClassVar = "gpt-5-mini"
    refused: ClassVar = ("temperature", "top_p")

    def listed(self, path: str, headers: dict[str, str]) -> Answer:
        if path == "/v1/model/info" and not wants_bearer(headers):
            info = {"input_cost_per_token": 2.5e-07, "output_cost_per_token": 2e-06}
            data = [{"model_name": self.model, "litellm_params": {}, "model_info": info}]
            return 200, {}, json.dumps({"data": data})
        return super().listed(path, headers)

    def not_let_in(self, headers: dict[str, str], query: str) -> Answer | None:
        words = "Authentication Error, Invalid proxy server token passed"
        refused = error(401, words, type="auth_error", param="None", code="401")
        return refused if wants_bearer(headers) else None

    def no_model(self, name: str) -> Answer:
        words = f"{{'error': '/chat/completions: Invalid model name passed in model={name}'}}"
        return error(400, words, type="None", param="None", code="400")

    def refuses(self, name: str) -> Answer:
        words = (
            f"litellm.UnsupportedParamsError: azure does not support parameters: ['{name}'], for "
            f"model={self.model}. To drop these, set `litellm.drop_params=True`"
        )
        return error(400, words, type="None", param="None", code="400")


class Azure(OwnServer):
    """Deployment in the path, key in an own header, version in the query, no list."""

    root: ClassVar = "/openai/deployments/my-gpt"
    model: ClassVar = "my-gpt"
    refused: ClassVar = ("max_tokens", "temperature")

    def listed(self, path: str, headers: dict[str, str]) -> Answer:
        return self.nothing_there(path)

    def not_let_in(self, headers: dict[str, str], query: str) -> Answer | None:
        if not query.startswith("api-version="):
            return self.nothing_there("")
        if headers.get("api-key") == KEY and "authorization" not in headers:
            return None
        words = "Access denied due to invalid subscription key or wrong API endpoint."
        return error(401, words, code="401")

    def nothing_there(self, path: str) -> Answer:
        if path.startswith("/openai/deployments/") and path.endswith("/chat/completions"):
            words = "The API deployment for this resource does not exist."
            return error(404, words, code="DeploymentNotFound")
        return error(404, "Resource not found", code="404")

    def no_model(self, name: str) -> Answer:
        raise AssertionError(f"the deployment is in the path; it was asked for {name}")

    def refuses(self, name: str) -> Answer:
        return openai_refusal(name, "max_completion_tokens" if name == "max_tokens" else "")


SERVERS: dict[str, type[OwnServer]] = {
    "on-ollama": Ollama,
    "on-openrouter": OpenRouter,
    "on-vllm": Vllm,
    "on-lm-studio": LmStudio,
    "on-litellm": LiteLlm,
    "on-azure": Azure,
}
"""By their names in docs/own-models.md."""
