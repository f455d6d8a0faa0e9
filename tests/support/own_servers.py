"""Stubs of servers that people have, with their habits, as their documentation has it."""

import json
from typing import Any

from tests.support.answers import PROVIDERS, answer_of
from tests.support.stub_server import Answer, StubServer

KEY = "sesame-sesame-sesame"
SERVERS: dict[str, dict[str, Any]] = PROVIDERS["servers"]
"""By their names in docs/own-models.md."""


class OwnServer(StubServer):
    """One server. `root` stands before /chat/completions in its paths, `model` is what it has,
    `refused` are parameters that it takes none of.
    """

    def __init__(self, name: str) -> None:
        self.own = SERVERS[name]
        self.root: str = self.own.get("root", "/v1")
        self.model: str = self.own["model"]
        self.refused: tuple[str, ...] = tuple(self.own.get("refused", ()))
        super().__init__((self.model,), skill=1.0)

    def says(self, what: str, name: str = "") -> Answer:
        return answer_of(**json.loads(json.dumps(self.own[what]).replace("NAME", name)))

    def not_let_in(self, headers: dict[str, str], query: str) -> Answer | None:
        if "no key" not in self.own:
            return None
        if not query.startswith(self.own.get("query", "")):
            return self.says("nothing")
        header = self.own.get("header", "authorization")
        wanted = KEY if header == "api-key" else f"Bearer {KEY}"
        given = {headers.get(name) for name in ("authorization", header)} - {None}
        return None if given == {wanted} else self.says("no key")

    def misbehave(self, count: int, body: dict[str, Any]) -> Answer | None:
        path, _, query = self.paths[-1].partition("?")
        if path != f"{self.root}/chat/completions":
            is_deployment = "no deployment" in self.own and "/deployments/" in path
            return self.says("no deployment" if is_deployment else "nothing", path)
        if (answer := self.not_let_in(self.headers[-1], query)) is not None:
            return answer
        if body["model"] != self.model:
            return self.says("no model", body["model"])
        if "no system" in self.own and any(m["role"] == "system" for m in body["messages"]):
            return self.says("no system")
        if name := next((name for name in self.refused if name in body), None):
            return self.says("refusal", name)
        return self.says("first") if "first" in self.own and count == 1 else None

    def lists(self, path: str, headers: dict[str, str]) -> Answer:
        path, _, query = path.partition("?")
        entry = {"id": self.model, "object": "model"} | self.own.get("entry", {})
        lists = {f"{self.root}/models": {"object": "list", "data": [entry]}}
        lists |= self.own.get("lists", {})
        if "unlisted" in self.own or path not in lists:
            return self.says("nothing", path)
        answer = None if "open" in self.own else self.not_let_in(headers, query)
        return answer or answer_of(body=lists[path])

    def completion(self, body: dict[str, Any], count: int) -> dict[str, Any]:
        last = body["messages"][-1]  # below what a system message said, where that was put there
        asked = last | {"content": last["content"].splitlines()[-1]}
        answer = super().completion(body | {"messages": [asked]}, count)
        answer["choices"][0]["message"] |= self.own.get("message", {})
        return answer
