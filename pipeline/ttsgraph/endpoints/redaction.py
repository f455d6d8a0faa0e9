"""Removal of API keys from what servers say: of whole keys, and of parts in other forms."""

import base64
import itertools
import re
from collections.abc import Iterator, Sequence

from ttsgraph.base.secrets import HIDDEN, SHORTEST, environment_secrets, redact


def redact_pieces(text: str, secrets: Sequence[str] | None = None) -> str:
    """Return the text without these secrets (by default, the environment's) and their parts.

    Parts are removed even if they are spaced out or encoded in base64 or hex. Use this only for
    texts from a server, because a harmless word that looks like a part of a secret is removed too.
    """
    secrets = environment_secrets() if secrets is None else secrets
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
