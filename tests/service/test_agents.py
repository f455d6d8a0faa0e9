"""An agent framework on a served graph: its loop runs as on the last node's model alone."""

import asyncio

import openai
import pytest

from tests.support.acting import acts
from tests.support.service import NAME, PoolStub, deployed, graph_of, pooled


def run_agent(kind, url, model):
    """What an agent with one tool says, and the cities that it asked the tool for."""
    agents = pytest.importorskip("agents", reason="no openai-agents (the extra dev has it)")
    agents.set_tracing_disabled(True)
    asked = []

    @agents.function_tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        asked.append(city)
        return f"21 in {city}"

    async def main():
        client = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
        wrapped = getattr(agents, kind)(model=model, openai_client=client)
        agent = agents.Agent(name="guide", tools=[get_weather], model=wrapped)
        result = await agents.Runner.run(agent, "How warm is it in Paris, and in Oslo?")
        await client.close()
        return result.final_output

    return asyncio.run(main()), sorted(asked)


@pytest.mark.parametrize(
    ("kind", "graph"), [("OpenAIChatCompletionsModel", "voter"), ("OpenAIResponsesModel", "fuser")]
)
def test_the_agents_loop_runs_on_a_graph_as_on_its_last_model(kind, graph):
    with pooled(PoolStub(acts)) as pool:
        with deployed(pool, graph_of(graph, *["small"] * 3)) as url:
            found = run_agent(kind, f"{url}/v1", NAME)
        alone = run_agent("OpenAIChatCompletionsModel", pool.url, "large")
    assert found == alone == ("It is 21 in Paris and 21 in Oslo.", ["Oslo", "Paris"])
