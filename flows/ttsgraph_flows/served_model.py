"""A deployed version as an MLflow pyfunc model defined by code: MLflow runs this file when a
version is logged or loaded.
"""

from pathlib import Path
from typing import Any

from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel

from ttsgraph.base.waiting import run
from ttsgraph.deployment.bundle import DeployedVersion


class ServedGraph(PythonModel):
    """MLflow model that answers questions with a deployed graph. The graph's models are called or
    started as the version's profile says.
    """

    def load_context(self, context: Any) -> None:
        """Read the version's bundle."""
        self.deployed = DeployedVersion.read(Path(context.artifacts["bundle"]))

    def predict(
        self, context: Any, model_input: list[str], params: dict[str, Any] | None = None
    ) -> list[str]:
        """Return the graph's answer to each question. Raises RunStopped if a call failed
        permanently.
        """
        return [run(self.deployed.answer(question)).text or "" for question in model_input]


set_model(ServedGraph())
