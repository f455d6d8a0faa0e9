"""Which models are there to search with: the profile's pool, and newcomers once their endpoint
lists them.
"""

from __future__ import annotations

from ttsgraph.base.errors import EndpointError
from ttsgraph.endpoints.openai_client import Endpoint
from ttsgraph.endpoints.transport import ask_once, listed_by
from ttsgraph.pool.settings import ModelSettings
from ttsgraph.settings.profile import Profile

TIMEOUT_S = 10.0


def with_newcomers(profile: Profile) -> Profile:
    """The profile with those newcomers in its pool that all their endpoints list now."""
    there = {name: model for name, model in profile.newcomers.items() if _is_served(name, model)}
    waiting = {name: model for name, model in profile.newcomers.items() if name not in there}
    return profile.model_copy(update={"pool": profile.pool | there, "newcomers": waiting})


def _is_served(name: str, model: ModelSettings) -> bool:
    """Whether every endpoint of the model lists it. One that can't be reached does not."""
    endpoint = Endpoint(model.base_urls, model.served_as or name, model.api_key_env)
    for url in model.base_urls:
        try:
            key = endpoint.api_key()
            listed = ask_once(url, key, TIMEOUT_S, listed_by)
            if endpoint.served_as not in listed:
                return False
        except EndpointError:  # its key is not set, which is the user's to mend
            raise
        except Exception:  # whatever a server that is none of models makes of it
            return False
    return True
