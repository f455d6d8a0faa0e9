"""A deployed version as an MLflow pyfunc, from code: MLflow runs this file when a version is
logged, and when one is loaded.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel

from ttsgraph.deployment.bundle import Deployed
from ttsgraph.runtime.clients import ask_graph


class ServedGraph(PythonModel):
    """Questions in, final answers out; models are reached or started as the version's own profile
    says.
    """

    def load_context(self, context: Any) -> None:
        """Read the bundle."""
        self.deployed = Deployed.read(Path(context.artifacts["bundle"]))

    def predict(
        self, context: Any, model_input: list[str], params: dict[str, Any] | None = None
    ) -> list[str]:
        """The graph's answer to each question. Raises RunStopped when a call failed for good."""
        version = self.deployed
        profile = version.profile_with()

        async def answers() -> list[str]:
            found = []
            for question in model_input:
                asked = ask_graph(version.graph, question, profile, version.task, version.shots)
                found.append((await asked).text or "")
            return found

        # In a thread of its own, because a notebook or a server that loads this has a loop running
        # already.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, answers()).result()


set_model(ServedGraph())
