"""Protection of API keys, which come from the environment and are sent only to their endpoint.

An endpoint may repeat a key, so keys are removed from answers, printed lines and logs. Settings
that contain a key are rejected, because settings end up in git, DVC and MLflow.
"""

import contextlib
import logging
import os
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from ttsgraph.base.errors import SettingsError

HIDDEN = "[key]"
SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY|(^|_)KEY", re.IGNORECASE
)
"""Pattern of the names of environment variables whose values are secret."""

SHORTEST = 8
"""Minimum number of characters of a secret; shorter values are placeholders, such as EMPTY, and
removing them would garble texts.
"""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_KEY = (
    r"(?:(?:api|access|private)[-_]?)?key|(?:(?:access|auth|api)[-_]?)?token|secret|passw(?:or)?d"
    r"|credentials?|authorization"
)
_LOOKS_SECRET = re.compile(
    r"""\b(sk|pk|rk|gsk|xai|pplx|key)-[A-Za-z0-9_-]{12,}  # OpenAI, Anthropic, DeepSeek, Groq
      | \b(hf|r8|ghp|gho|ghs|glpat|nvapi|github_pat)[_-][A-Za-z0-9_-]{16,}
      | \bA(KIA|SIA)[A-Z0-9]{16}\b | \bAIza[A-Za-z0-9_-]{30,} | \bxox[abprs]-[A-Za-z0-9-]{10,}
      | \beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.         # a JSON web token
      | -----BEGIN\ [A-Z ]*PRIVATE\ KEY | \bBearer\ +\S{8,}
      | ://[^/\s:@]*:[^/\s@]+@                                # a password in a URL
      | """
    rf"[?&](?i:{_SECRET_KEY})=[^&\s]+",
    re.VERBOSE,
)
_IN_URL = re.compile(rf"(://)[^/\s:@]*:[^/\s@]*(?=@)|([?&](?:{_SECRET_KEY})=)[^&\s]+", re.I)


def environment_secrets() -> tuple[str, ...]:
    """Return the environment's secrets, the longest first.

    In that order, a secret that contains another one is removed as a whole.
    """
    values = {value.strip() for name, value in os.environ.items() if SECRET_NAME.search(name)}
    return tuple(sorted((each for each in values if len(each) >= SHORTEST), key=len, reverse=True))


def redact(text: str, secrets: Sequence[str] | None = None) -> str:
    """Return the text without these secrets.

    By default, remove the environment's secrets, and the passwords and keys in URLs.
    """
    for secret in environment_secrets() if secrets is None else secrets:
        text = text.replace(secret, HIDDEN)
    return _IN_URL.sub(rf"\1\2{HIDDEN}", text) if secrets is None else text


def refuse_secrets(data: Any, where: str, *path: str) -> None:
    """Raise SettingsError naming the place of the first setting that looks like a secret, if any.

    Also raise it if `api_key_env` is not the name of an environment variable for a secret. `path`
    has the keys of `data` in the settings.
    """
    if isinstance(data, Mapping):
        for key, value in data.items():
            refuse_secrets(value, where, *path, str(key))
    elif isinstance(data, list):
        for value in data:
            refuse_secrets(value, where, *path)
    elif isinstance(data, str):
        name = path[-1] if path else ""
        of_secret = _VARIABLE.fullmatch(data) and SECRET_NAME.search(data)
        allowed = of_secret if name == "api_key_env" else not re.fullmatch(_SECRET_KEY, name, re.I)
        if not allowed or _LOOKS_SECRET.search(data):
            raise SettingsError(
                f"{where}: key {'.'.join(path)!r}: found what may be a key or password; move it to"
                " an environment variable with KEY, TOKEN, SECRET or PASSWORD in its name, name the"
                " variable in api_key_env, and replace the key or password itself, because"
                " settings files are shared"
            )


def hide_secrets_in_output() -> None:
    """Keep the environment's secrets out of log records and tracebacks of uncaught exceptions."""
    make = logging.getLogRecordFactory()

    def hiding(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        # If the arguments don't fit the message, logging itself reports it.
        with contextlib.suppress(TypeError, ValueError):
            record.msg = redact(record.getMessage())
            record.args = ()
        if record.exc_info and record.exc_info[0] is not None:
            # Formatters print this text instead of formatting the exception.
            record.exc_text = _trace(*record.exc_info).rstrip()
        return record

    logging.setLogRecordFactory(hiding)
    sys.excepthook = lambda *error: print(_trace(*error), end="", file=sys.stderr)


def _trace(*error: Any) -> str:
    """Return a formatted exception without secrets, given its type, itself and its traceback."""
    return redact("".join(traceback.format_exception(*error)))
