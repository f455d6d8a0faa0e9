"""From a dataset or a model to the versions that use it."""

from __future__ import annotations

import json

from ttsgraph_flows.registry import Registry, Version


def dependents(
    tracking_uri: str, dataset: str | None = None, model: str | None = None
) -> list[Version]:
    """The versions that were made with a dataset (its MD5) or a model (`name`, or `name@revision`),
    oldest first.
    """
    name, _, revision = (model or "").partition("@")
    found = []
    for version in Registry(tracking_uri).versions():
        models = json.loads(version.tags.get("models", "{}"))
        if (dataset is None or version.tags.get("dataset") == dataset) and (
            model is None or (name in models and revision in ("", models[name]))
        ):
            found.append(version)
    return found
