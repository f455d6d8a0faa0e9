"""Local servers of a profile's models: prepare their weights, and find or start them.

Servers that another process keeps running (as in `make repro`) are used and left running.
"""

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from ttsgraph.base.ending import say
from ttsgraph.base.errors import EndpointError, SettingsError
from ttsgraph.base.state import STATE
from ttsgraph.pool.engine import ENGINES, EngineSettings
from ttsgraph.pool.settings import ModelSettings
from ttsgraph.serving import convert
from ttsgraph.serving.environment import run_serving, vllm_build
from ttsgraph.serving.memory import needs_of
from ttsgraph.serving.placement import HostedModel
from ttsgraph.serving.servers import ServerSpec, gpu_memory_gib, server_specs
from ttsgraph.serving.supervisor import Urls, in_use, shared_servers
from ttsgraph.settings.profile import Profile

RECORD = "servers.json"

STARTUP_S = 1800.0
"""Maximum seconds until a server started here answers: a large model is downloaded and compiled
meanwhile. The end of a server is noticed immediately.
"""


@contextmanager
def running_servers(profile: Profile, state: Path = STATE) -> Iterator[Urls]:
    """Yield a map from each model to the base URLs of its local servers, started if necessary.

    Raises EndpointError if servers can't be started, or if a plug-in's engine gives no URL for a
    model.
    """
    engine = profile.engine
    if profile.hosted:
        specs = partial(local_specs, profile, state)
        with shared_servers(state / RECORD, profile.hosted, specs, STARTUP_S) as urls:
            yield {name: urls[name] for name in profile.hosted}
    elif models := profile.elsewhere:  # a plug-in's engine starts their servers
        with ENGINES[engine.kind].servers(models, engine, state) as urls:
            if missing := [name for name in models if not urls.get(name)]:
                raise EndpointError(
                    f"engine {engine.kind}: expected a base URL for {missing[0]!r}, found none"
                )
            yield {name: tuple(urls[name]) for name in models}
    else:
        yield {}


def servers_on_demand(profile: Profile, state: Path = STATE) -> AbstractContextManager[object]:
    """Return a context that keeps local servers running once another process has started them.

    A process starts servers only if it needs a call that is missing from the cache.
    """
    return in_use(state / RECORD) if profile.hosted else nullcontext()


def local_specs(profile: Profile, state: Path = STATE) -> tuple[ServerSpec, ...]:
    """Return the specifications of the pool's local servers, after preparing all weights.

    Raises like `prepare_weights` and `server_specs`.
    """
    engine = profile.engine
    asked = engine.kind == "vllm" or engine.device == "auto"
    build = vllm_build(engine.python) if asked else None
    device = build.device if build and engine.device == "auto" else engine.device
    models = {}
    for name, model in profile.hosted.items():
        prepare_weights(name, model, engine.python, state)
        models[name] = hosted_model(name, model, engine, state)
    gpus = None if device == "cpu" else gpu_memory_gib()
    has_command = build is not None and build.has_command
    return server_specs(engine, models, state / "logs", gpus, has_command)


def hosted_model(
    name: str, model: ModelSettings, engine: EngineSettings, state: Path = STATE
) -> HostedModel:
    """Return a model to serve; its weights need not exist yet. Raises the same errors as
    `source_of`.
    """
    source, needs = source_of(name, model, state), needs_of(model, engine)
    from_hub = model.weights is not None and model.weights.hub is not None
    revision = model.revision if from_hub and model.revision != "unpinned" else None
    # Assume the same number of calls of each model: the search's choices aren't known yet.
    load = model.non_embedding or 0.0
    return HostedModel(source, model.serve, revision, needs, load, from_hub)


def source_of(name: str, model: ModelSettings, state: Path = STATE) -> str:
    """Return the folder or hub id of a model's weights. Raises SettingsError for a model without
    weights.
    """
    weights = model.weights
    if weights is None:
        raise SettingsError(
            f"pool model {name!r}: expected weights (package, gguf, hub or path), because the"
            " engine starts servers"
        )
    return str(state / "models" / name if weights.converted else weights.hub or weights.path)


def prepare_weights(name: str, model: ModelSettings, python: str, state: Path = STATE) -> str:
    """Return the folder or hub id of a model's weights, after converting a GGUF if necessary.

    A GGUF file is looked for in a local folder (the variable TTSGRAPH_WEIGHTS or, without it, the
    state's `weights`), then on the hub. Raises EndpointError if the conversion fails or the
    revision differs from the profile's, and like `source_of`.
    """
    source = source_of(name, model, state)
    weights = model.weights
    ready = convert.revision_in(Path(source)) == model.revision
    if weights is None or not weights.converted or ready:
        return source
    say(f"preparing the weights of {name} (only once; takes up to a minute)")
    asked = {"out": source, "revision": model.revision}
    if weights.package is not None:
        asked |= {"package": weights.package}
    if weights.gguf is not None:
        local = os.environ.get("TTSGRAPH_WEIGHTS", str(state / "weights"))
        asked |= weights.gguf.model_dump(exclude_none=True) | {"folder": local}
    run_serving(python, ["-P", convert.__file__, json.dumps(asked)], f"weights of {name}: ")
    return source
