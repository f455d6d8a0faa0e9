"""Learning a model's dialect from refusals: a refused request is retried in another form, and
the accepted form is kept.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ttsgraph.base.secrets import redact
from ttsgraph.endpoints.faults import Fault
from ttsgraph.models.dialect import FORMS, Dialect, DialectStore

LEAST_BOUND = 512
"""Smallest token bound to which a refused bound is halved."""

_LEAST_MISSED = ("stream_options", "seed", "top_p", "reasoning_effort", "stop", "temperature")
"""Optional parameters, the most dispensable first; if an error names several, the first of them is
left out first.
"""

log = logging.getLogger(__name__)


def weaker(
    dialect: Dialect, refusal: Fault, sent: Mapping[str, Any], schema: bool, guess: bool
) -> Dialect:
    """Return the dialect to try after a refusal of the body `sent`, or the same one if there is
    none: what the refusal names is left out, or else a `schema` is asked for in a weaker form, or
    else one more parameter is left out on a `guess`.
    """
    meaning = refusal.meaning
    has_system = dialect.system and any(each["role"] == "system" for each in sent["messages"])
    if meaning == "system" and has_system:
        return replace(dialect, system=False)
    if meaning in ("full", "less room"):
        return _with_lower_bound(dialect, refusal, sent)
    optional = [name for name in (*_LEAST_MISSED, dialect.bound or "") if name in sent]
    told = meaning in ("parameter", "system")
    named = [name for name in optional if told and refusal.names(name)]
    if not named and schema and dialect.form != "text":
        return replace(dialect, form=FORMS[FORMS.index(dialect.form) + 1])
    # Only a refusal that names it may cost the last bound on tokens, without which limits can pass.
    guessed = [name for name in optional if guess and name != "max_completion_tokens"]
    if first := (named or guessed)[:1]:
        return replace(dialect, left_out=dialect.left_out.union(first))
    return replace(dialect, system=dialect.system and not (guess and has_system))


def _with_lower_bound(dialect: Dialect, refusal: Fault, sent: Mapping[str, Any]) -> Dialect:
    """Return the dialect with a lower token bound: the largest one that the server names, if it is
    at least half of the requested bound, otherwise that half. If the server names no such bound and
    the half is below LEAST_BOUND, return the dialect unchanged.
    """
    asked = sent.get(dialect.bound, 0) if dialect.bound else 0
    named = [int(number) for number in re.findall(r"\d+", refusal.words)]
    half = asked // 2 if asked // 2 >= LEAST_BOUND else dialect.most_tokens
    most = max((each for each in named if asked / 2 <= each < asked), default=half)
    return replace(dialect, most_tokens=most)


@dataclass
class LearnedDialect:
    """Dialect of one model: at first the profile's, then updated to what the endpoint accepts, and
    stored under `name`. `known`: the endpoint has given an answer.
    """

    name: str
    dialect: Dialect
    known: bool
    store: DialectStore

    def learn(self, dialect: Dialect) -> None:
        """Add the restrictions of a dialect in which the endpoint has given an answer."""
        self.known = True
        joined = self.dialect.joined(dialect)
        if joined != self.dialect:
            self.dialect = joined
            line = "%s refuses or ignores parts of the requests; requests are now sent %s"
            log.warning(line, redact(self.name), joined.words)
            self.store.keep(self.name, joined)
