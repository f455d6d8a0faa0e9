"""Failed attempts at calls: the meaning of an endpoint's refusal by the table in `refusals.yaml`,
and the cause of a failure with its remedy, by the table in `causes.yaml`. Quotes of servers contain
no API keys, nor parts of them in other forms.
"""

import base64
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from ttsgraph.base.errors import CallFailed
from ttsgraph.base.secrets import HIDDEN, SHORTEST, environment_secrets, redact

Meaning = Literal[
    "filter", "quota", "key", "model", "https", "more room", "overflow", "full", "system",
    "parameter", "less room", "",
]  # fmt: skip
"""Meanings of a refusal. filter: a content filter refuses the prompt; quota: the account is empty;
key: the key is refused; model: there is no such model; https: the port expects TLS; more room: the
token bound was too low to finish the answer; overflow: the prompt exceeds the context; full: the
prompt and the token bound together exceed it; system: the system role is not supported; parameter:
a parameter is not supported; less room: the token bound is too high; "": anything else.
"""


def _table(name: str) -> dict[Any, dict[str, Any]]:
    """Return one of the tables in this folder."""
    return dict(yaml.safe_load(Path(__file__).with_name(f"{name}.yaml").read_bytes()))


REFUSALS: dict[Meaning, dict[str, Any]] = _table("refusals")
"""Criteria of the meanings, in the order in which they are tried: HTTP `statuses`, error `codes`
(reduced to lower-case letters and digits), and regular expressions for the message (`words`).
"""

SETTLED: tuple[Meaning, ...] = ("filter", "quota", "key", "model", "https", "more room", "overflow")
"""Meanings of refusals that no other form of the request can avoid."""

OF_ONE_PROMPT: frozenset[Meaning] = frozenset({"filter", "more room", "overflow", "full"})
"""Meanings of refusals that say nothing against the server: it may answer another prompt."""

_NAMED = (
    *("code", "type", "status", "reason", "finish_reason", "native_finish_reason"),
    *("blockReason", "block_reason"),
)
_SAID = ("message", "detail", "error", "msg", "status_msg")
_DEEPEST = 6


def _leaves(told: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the texts and numbers of an error with their names, down to _DEEPEST levels; OpenAI,
    vLLM, FastAPI and others nest them differently.
    """
    if isinstance(told, dict | list) and depth < _DEEPEST:
        inner = told.items() if isinstance(told, dict) else [(name, each) for each in told[:20]]
        for key, value in inner:
            yield from _leaves(value, key, depth + 1)
    elif isinstance(told, str | int):
        yield name, str(told)


def bare(code: str) -> str:
    """Return a code's lower-case letters and digits."""
    return re.sub(r"[^a-z0-9]", "", code.lower())


NO_CONNECTION = "connection refused or broken"
NO_PROXY = "no connection to the proxy"


class Cause(NamedTuple):
    """Diagnosis of a failed attempt and its remedy, both with the facts of an endpoint in braces.

    `users`: only the user can fix it. `statuses` are the HTTP statuses that show it if the server's
    message doesn't; `errors` are names of exceptions, raised before a server received the request.
    """

    found: str
    advice: str
    users: bool = False
    statuses: Sequence[int] = ()
    errors: Sequence[str] = ()


CAUSES = {name: Cause(**row) for name, row in _table("causes").items()}
"""Causes of failed attempts by name."""

OVERLOADED = (408, 429, 503, 529)
TRANSIENT = (408, 409, 425, 429)
LONGEST_SAID = 200
"""Maximum number of characters of a server's message that an error quotes."""


@dataclass(eq=False)
class Fault(CallFailed):
    """Error of one failed attempt at a call.

    `kind` is our own text, never the server's, because it appears in logs and reports. `overload`:
    the server was overloaded. `unreached`: no server received the request. `retry`: another attempt
    may succeed; a `meaning` in SETTLED rules that out. `words` is the server's message with its
    meaning and the parameter that it names, if any; `status` is the HTTP status.
    """

    kind: str
    retry: bool = True
    overload: bool = False
    retry_after_s: float | None = None
    unreached: bool = False
    status: int | None = None
    meaning: Meaning = ""
    words: str = ""
    param: str | None = None

    def __post_init__(self) -> None:
        super().__init__(self.kind)
        self.retry = self.retry and self.meaning not in SETTLED

    def names(self, parameter: str) -> bool:
        """Return True if the server's message is about this parameter."""
        if self.param is not None:
            return self.param == parameter
        return re.search(rf"(?<![A-Za-z_]){parameter}(?![A-Za-z_])", self.words) is not None

    @property
    def cause(self) -> str:
        """Name of the cause, one of the keys of CAUSES."""
        if self.meaning in CAUSES:
            return self.meaning
        if self.status is None:
            return self.kind if self.kind in CAUSES else "other API"
        shown = (name for name, cause in CAUSES.items() if self.status in cause.statuses)
        return next(shown, "busy" if self.retry else "request")

    def said(self) -> str:
        """Return the server's message as one line without secrets, or "" if there is none."""
        shown = "".join(letter if letter.isprintable() else " " for letter in self.words)
        line = redact_pieces(" ".join(shown.split()), environment_secrets())
        return line if len(line) <= LONGEST_SAID else f"{line[:LONGEST_SAID]} ..."

    def quoted(self) -> str:
        """Return the server's message in brackets, to follow a text, or "" if there is none."""
        line = self.said()
        return f" ({line})" if line else ""


def refusal(kind: str, told: Any, code: int | None = None, **more: Any) -> Fault:
    """Return the fault for an error that a server sent as text or plain data, with its meaning and
    the parameter that it names.

    If the HTTP status `code` is given, only meanings with this status apply; redirects, and client
    errors other than those in TRANSIENT, rule out a retry.
    """
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except (ValueError, RecursionError):
            told = {"message": "" if told.lstrip().startswith("<") else told}  # skip HTML pages
    codes: set[str] = set()
    texts: list[str] = []
    for name, value in _leaves(told):
        if name in _NAMED:
            codes.update(map(bare, value[:80].split(":")))
        elif name in _SAID:
            texts.append(value[:2000])
        elif name == "param" and re.fullmatch(r"\w+", value) and value != "None":  # of LiteLLM
            more.setdefault("param", value)
    words = texts[0] if texts else json.dumps(told)[:2000]
    by_status: dict[int | None, Meaning] = {401: "key", 402: "quota"}
    meaning = by_status.get(code, "")
    for each, row in REFUSALS.items():
        pattern = re.compile("|".join(row["words"]), re.IGNORECASE | re.DOTALL)
        coded = codes.intersection(row.get("codes", "").split())
        fits = code is None or code in row["statuses"]
        if fits and (coded or any(map(pattern.search, [words, *texts]))):
            meaning = each
            break
    if code is not None:
        more["retry"] = not 300 <= code < 500 or code in TRANSIENT
        more["overload"] = code in OVERLOADED
    return Fault(kind, meaning=meaning, words=words, **more)


def redact_pieces(text: str, secrets: Sequence[str]) -> str:
    """Return the text without these secrets and their parts.

    Parts are removed even if they are spaced out or encoded in base64 or hex. Use this only for
    texts from a server, because a harmless word that looks like a part of a secret is removed too.
    """
    text = redact(text, secrets)
    places = [k for k, letter in enumerate(text) if letter.isascii() and letter.isalnum()]
    plain = "".join(text[k] for k in places).lower()
    pieces = {
        form[start : start + SHORTEST]
        for secret in secrets
        for form in _forms(secret.encode())
        for start in range(len(form) - SHORTEST + 1)
    }
    hidden: set[int] = set()
    for start in range(len(plain) - SHORTEST + 1):
        if plain[start : start + SHORTEST] in pieces:
            hidden.update(range(places[start], places[start + SHORTEST - 1] + 1))
    parts = itertools.groupby(range(len(text)), hidden.__contains__)
    return "".join(HIDDEN if hide else "".join(text[k] for k in at) for hide, at in parts)


def _forms(secret: bytes) -> Iterator[str]:
    """Yield the letters and digits, in lower case, of a secret and of its common encodings."""
    # Base64 encodes three bytes as four characters, so a secret's encoding depends on how many
    # bytes precede it.
    coded = [base64.b64encode(b"\0" * before + secret)[2 * before :] for before in range(3)]
    for form in (secret, secret.hex().encode(), *coded):
        yield re.sub("[^a-z0-9]", "", form.decode(errors="ignore").lower())
