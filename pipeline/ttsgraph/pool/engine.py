"""Settings for serving and calling models."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import AfterValidator, Field, PositiveFloat, PositiveInt

from ttsgraph.base.errors import SettingsError
from ttsgraph.base.parsing import ClosedModel
from ttsgraph.base.state import SERVE_PYTHON

Probability = Annotated[float, Field(ge=0.0, le=1.0)]


class ServeSettings(ClosedModel):
    """Serving settings of one model that differ from the engine's; GPU keys have no effect on a
    CPU.
    """

    replicas: PositiveInt | None = None
    """number of servers that share the model's load; if not given, it depends on load and memory on
    GPUs, and is 1 otherwise
    """
    tensor_parallel: PositiveInt | None = None
    """GPUs that one server spreads the model over; the fewest that hold it if not given"""
    max_model_len: PositiveInt | None = None
    """maximum tokens of a prompt and its answer, if the model allows fewer than the engine's"""
    kv_heads: PositiveInt | None = None
    """number of key-value heads, for the size of a GPU's cache; an upper bound if not given"""
    head_dim: PositiveInt | None = None
    """size of an attention head, given with kv_heads"""
    extra_args: tuple[str, ...] = ()
    """additional arguments of this model's server"""
    # Keys of earlier versions that had no value by default.
    port: ClassVar = None
    gpu_memory: ClassVar = None


class Engine(Protocol):
    """User-defined engine, which starts servers for models without a base_url."""

    name: str

    def servers(
        self, models: Mapping[str, Any], settings: EngineSettings, state: Path
    ) -> AbstractContextManager[Mapping[str, tuple[str, ...]]]:
        """Start servers for these models (ModelSettings by name), yield their base URLs by name,
        and stop the servers at the end of the context.

        `state` is a folder for logs. Each server has to offer the OpenAI API and to serve its model
        under `served_as`, or under the model's name. Raises EndpointError if a server can't be
        started.
        """


BUILT_IN = ("vllm", "transformers", "external", "simulated")
ENGINES: dict[str, Engine] = {}


def register_engine(engine: Engine) -> None:
    """Register an engine under its name. Raises SettingsError for the name of a built-in engine."""
    if engine.name in BUILT_IN:
        raise SettingsError(f"engine {engine.name!r}: expected a new name, but it is built in")
    ENGINES[engine.name] = engine


def _known(kind: str) -> str:
    kinds = (*BUILT_IN, *ENGINES)
    if kind not in kinds:
        raise ValueError(f"expected one of {', '.join(map(repr, kinds))}, found {kind!r}")
    return kind


class EngineSettings(ClosedModel):
    """Serving of models: by servers started here, or by endpoints that already run (external). A
    model with a base_url is reached at that URL, regardless of the engine.
    """

    kind: Annotated[str, AfterValidator(_known)]
    """servers started here (vllm, transformers), running endpoints (external), or no model at all
    (simulated)
    """
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """auto: the device that the installed vLLM was built for"""
    python: str = SERVE_PYTHON
    """Python of the environment that servers run in; you choose its packages"""
    max_model_len: PositiveInt = 2048
    """maximum tokens of a prompt and its answer together"""
    concurrency: PositiveInt = 32
    """maximum parallel requests per endpoint"""
    timeout_s: PositiveFloat = 120
    """timeout of one attempt"""
    max_retries: int = Field(default=8, ge=0)
    """attempts after the first, for temporary failures"""
    seeds: bool = False
    """true: external endpoints may receive a seed with each request"""

    # Constants of FailurePolicy and others, which were keys in earlier versions.
    effective_tflops: ClassVar = ...
    startup_s: ClassVar = 300  # serving.running.STARTUP_S is longer
    backoff_s: ClassVar = 0.5
    down_s: ClassVar = 180
    max_failed: ClassVar = 0.5
    max_restarts: ClassVar = 3
    cache_gib: ClassVar = 16
    dtype: ClassVar = "auto"
    max_unscored: ClassVar = 0.25
    extra_args: ClassVar[list[str]] = []
