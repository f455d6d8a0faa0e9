"""Settings of how models are served and asked."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field, PositiveFloat, PositiveInt, field_validator, model_validator

from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import Closed
from ttsgraph.base.state import SERVE_PYTHON

Probability = Annotated[float, Field(ge=0.0, le=1.0)]


class ServeSettings(Closed):
    """How one model is served, where it differs from the engine; GPU keys do nothing on a CPU."""

    replicas: PositiveInt | None = None
    """servers that share the model's load; on GPUs by load and memory if not given, else 1"""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """the first replica's; free ones if not given"""
    tensor_parallel: PositiveInt | None = None
    """GPUs that one server spreads the model over; the fewest that hold it if not given"""
    gpu_memory: Annotated[float, Field(gt=0, le=1)] | None = None
    """share of each GPU's memory"""
    max_model_len: PositiveInt | None = None
    """where the model's context is shorter than the engine's"""
    kv_heads: PositiveInt | None = None
    """heads of keys and values, for the cache's size; read from weights that are here"""
    head_dim: PositiveInt | None = None
    """size of a head"""
    extra_args: tuple[str, ...] = ()
    """more arguments of this model's server"""


class Engine(Protocol):
    """An engine of one's own: it starts servers of models that have no base_url."""

    name: str

    def servers(
        self, models: Mapping[str, Any], settings: EngineSettings, state: Path
    ) -> AbstractContextManager[Mapping[str, tuple[str, ...]]]:
        """Start servers of these models (name -> ModelSettings); gives their base URLs by name, and
        ends them with the context. `state` is a folder for logs. They speak the OpenAI API, and
        know a model by `served_as` or its name. Raises EndpointError when one can't be had.
        """
        ...


BUILT_IN = ("vllm", "transformers", "external", "simulated")
ENGINES: dict[str, Engine] = {}


def register_engine(engine: Engine) -> None:
    """Make an engine known by its name. Raises SettingsError for the name of one that is here."""
    if engine.name in BUILT_IN:
        raise SettingsError(f"engine {engine.name!r}: expected a name of its own, there is one")
    ENGINES[engine.name] = engine


RETIRED = {
    "backoff_s": 0.5,
    "down_s": 180,
    "max_failed": 0.5,
    "max_restarts": 3,
    "cache_gib": 16,
    "dtype": "auto",
    "max_unscored": 0.25,
    "extra_args": [],
}
"""Keys that nobody set, by the one value that they have (`FailurePolicy`, `Retries`, `Launcher`,
`MAX_BYTES`, `number_format`, `Environment`, `serve.extra_args`). A bundle of an earlier
version has them, and what makes two searches the same still counts them.
"""


class EngineSettings(Closed):
    """How models are served: by servers that are started here, or by endpoints that run already
    (external). A model with a base_url is reached there, whatever the engine.
    """

    kind: str
    """servers started here (vllm, transformers), endpoints that run already (external), or no
    model at all (simulated)"""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """auto: what the installed vLLM was built for"""
    python: str = SERVE_PYTHON
    """the Python of the environment that servers run in; its packages are yours"""
    max_model_len: PositiveInt = 2048
    """tokens of a prompt and its answer together, at most"""
    concurrency: PositiveInt = 32
    """requests under way at once, at most, per endpoint"""
    timeout_s: PositiveFloat = 120
    """of one attempt"""
    max_retries: int = Field(default=8, ge=0)
    """attempts after the first, for what may go better then"""
    startup_s: PositiveFloat = 300
    """until a server that is started here has to answer"""
    seeds: bool = False
    """whether external endpoints may be sent a seed with each request"""
    effective_tflops: PositiveFloat | None = None
    """sustained TFLOP/s of all devices, for estimates of time"""

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_bundles(cls, given: Any) -> Any:
        """Without keys that bundles of earlier versions hold, where they have their one value."""
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if RETIRED.get(name) != value}

    @field_validator("kind")
    @classmethod
    def _known_kind(cls, kind: str) -> str:
        if kind not in (*BUILT_IN, *ENGINES):
            known = ", ".join(map(repr, (*BUILT_IN, *ENGINES)))
            raise ValueError(f"expected one of {known}, found {kind!r}")
        return kind
