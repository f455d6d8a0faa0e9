"""A graph as a field of a pydantic model, stored as plain data."""

from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator

from ttsgraph.base.errors import GraphError
from ttsgraph.graphs.graph import CollaborationGraph


def _graph(given: Any) -> CollaborationGraph:
    if isinstance(given, CollaborationGraph):
        return given
    try:
        return CollaborationGraph.from_dict(given)
    except GraphError as error:
        raise ValueError(str(error)) from None


Graph = Annotated[
    CollaborationGraph, PlainValidator(_graph), PlainSerializer(CollaborationGraph.to_dict)
]
