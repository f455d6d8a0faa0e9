"""What each setting means whose field has no description of its own; by the class of its section,
then by key.
"""

from __future__ import annotations

KIND = "which of these it is"

MEANINGS: dict[str, dict[str, str]] = {
    "Params": {
        "profile": "the profile that stages and commands use: profiles/<profile>.yaml",
        "tasks": "which of the profile's tasks to run",
        "methods": "which search methods to run",
        "seed": "of every random choice; the same seed gives the same results",
        "tracking_uri": "where MLflow keeps runs and versions",
        "service": "`ttsgraph serve`",
    },
    "ServiceSettings": {"host": "address to listen at", "max_body_bytes": "of a request"},
    "Profile": {
        "description": "what the profile is for",
        "engine": "how models are served and asked",
        "pool": "the models that a graph may use, by name",
        "tasks": "the tasks, by name",
        "roles": "what nodes may do; assistant is always among them",
        "budget": "what a question may cost",
        "pilot": "the sweeps of plain graphs before the search",
        "init": "the trials that the search starts from",
        "search": "the search loop",
        "agent": "who guides the search",
        "objective": "what the search maximises",
        "limits": "what one search may spend",
        "workers": "where candidates are evaluated",
        "sandbox": "programs that models write",
        "evaluate": "the test of what was found",
        "deploy": "when a graph becomes the champion",
        "research": "searching again when the pool changes",
    },
    "EngineSettings": {
        "kind": (
            "servers started here (vllm, transformers), endpoints that run already (external), or"
            " no model at all (simulated)"
        ),
        "max_model_len": "tokens of a prompt and its answer together, at most",
        "startup_s": "until a server that is started here has to answer",
        "extra_args": "more arguments of the server's command",
    },
    "ServeSettings": {"extra_args": "more arguments of this model's server, after the engine's"},
    "ModelSettings": {
        "price": (
            "$ per million tokens: one number, or prompt and completion (and cached, reasoning) by"
            " name"
        ),
        "layers": "transformer layers",
        "speed": "seconds per prompt token and per generated token, for a budget of time",
        "weights": "where a server that is started here finds them",
        "serve": "how it is served here",
        "variants": "members of the pool that ask the same model in another way, by name",
    },
    "WeightsSettings": {
        "package": "a Python package that ships a GGUF file",
        "hub": "an id of the Hugging Face hub",
        "path": "a folder",
    },
    "VariantSettings": {
        "temperature": "of sampling; 0 is greedy",
        "top_p": "share of probability that tokens are drawn from",
        "max_tokens": "of one answer",
        "stop": "texts that end an answer",
        "style": "how prompts are written",
    },
    "TaskSettings": {
        "kind": "how answers are read and graded; `ttsgraph new-task --help` lists the kinds",
        "source": "where the questions come from",
        "splits": "how many questions for what",
        "prompt": "how models are asked",
        "sampling": "how answers are drawn",
    },
    "HubSource": {
        "kind": KIND,
        "path": "the data set's id on the hub",
        "name": "its configuration, or several",
        "split": "its split",
        "revision": "its commit; the newest if not given",
    },
    "JsonlSource": {"kind": KIND, "path": "the file: .jsonl, .jsonl.gz, .csv or .parquet"},
    "LmEvalSource": {"kind": KIND},
    "InspectSource": {"kind": KIND},
    "MlflowSource": {"kind": KIND},
    "PackageSource": {
        "kind": KIND,
        "package": "an installed Python package",
        "file": "the path inside it",
        "format": "how the file is written",
    },
    "GeneratorSource": {
        "kind": KIND,
        "dataset": "the name of a reasoning-gym data set",
        "size": "how many questions are generated",
        "config": "the data set's own settings",
        "pattern": "a regular expression whose group is what is kept of a question's text",
        "template": "how a question is written around that text",
    },
    "SyntheticSource": {"kind": KIND, "task": "whose questions are made up", "size": "how many"},
    "MixtureSource": {"kind": KIND, "parts": "the sources, each with its kind"},
    "SplitSettings": {
        "shots": "worked examples in few-shot prompts",
        "train": "questions that trials and batches are drawn from",
        "val": "questions that choose among candidates",
        "test": "questions that no search sees",
    },
    "PromptSettings": {
        "style": "worked examples to go on from, or messages of a chat",
        "instruction": "what every prompt begins with; the task's own if not given",
        "layout": "how few-shot prompts are written",
    },
    "LayoutSettings": {
        "head": "how a question begins",
        "refine": "how an assistant is shown an answer",
        "fuse": "how a fuser is shown an answer",
        "cue": "what the answer follows",
        "separator": "what stands between worked examples",
    },
    "SamplingSettings": {
        "temperature": "of sampling; 0 is greedy",
        "top_p": "share of probability that tokens are drawn from",
        "max_tokens": "of one answer",
        "stop": "texts that end an answer",
    },
    "LengthSettings": {
        "prompt_tokens": "of a question's prompt, on average",
        "generated_tokens": "of an answer, on average",
    },
    "MeasuredLengths": {
        "prompt_tokens": "of a question's prompt, on average",
        "generated_tokens": "of an answer, on average",
        "read_tokens": "that each answer read adds to a prompt",
        "more_tokens": "that each answer read adds to the answer",
        "by_role": "the last two, in each role in which they were measured",
    },
    "BudgetSettings": {
        "metric": (
            "what is bounded: calls of the cheapest model by their FLOPs, dollars, or seconds"
        ),
        "limit": "for one question: budget units, dollars or seconds, as the metric says",
        "max_nodes": "of a graph, whatever they cost",
    },
    "PilotSettings": {
        "questions": "training questions that each graph is run on",
        "widths": "how many answers side by side are tried",
        "depths": "how many calls in a row are tried",
        "max_nodes": "of a graph of the sweeps",
    },
    "InitSettings": {
        "questions": "training questions of a trial",
        "candidates": "sets of models that are tried",
        "topologies": "random graphs that each set of models is tried in",
        "contest": "the contest of structured graphs",
    },
    "ContestSettings": {
        "enabled": "whether there is one",
        "rounds": "of choosing graphs to run by what is known",
    },
    "SearchSettings": {
        "max_iterations": "rounds of the search, at most",
        "patience": "rounds without a better validation score after which it ends",
        "edge_threshold": (
            "probability from which an edge is in the graph that is read off the distribution"
        ),
        "alpha": "how strongly nodes that read many answers lean to fusing them (1: not at all)",
        "racing": "stopping candidates early",
    },
    "RacingSettings": {"enabled": "whether candidates that are clearly beaten are stopped"},
    "AgentSettings": {
        "kind": "the paper's insights as rules, or a language model",
        "insight_1": "whether it may use the first insight: which models go together",
        "insight_2": "whether it may use the second: how many of them",
        "insight_3": "whether it may use the third: how wide and how deep",
        "roles": "whether roles are learnt; without, all nodes are assistants",
        "step": "how far the heuristic moves a probability at once",
        "base_url": (
            "the endpoint of its model; a model of the pool is asked where the pool's calls go"
        ),
        "price": "$ per million tokens of its model",
        "revision": "which weights its model has",
        "tokens_key": "how requests bound an answer's tokens",
        "timeout_s": "of one attempt",
        "max_retries": "attempts after the first",
    },
    "Objective": {"kind": "accuracy alone, or accuracy and latency together"},
    "LimitSettings": {"dollars": "that its calls may really cost", "wall_s": "that it may take"},
    "WorkerSettings": {"kind": "in this process, or on a Dask or Ray cluster"},
    "DeploySettings": {"promote": "once the paired test shows it better, or by hand alone"},
    "ResearchSettings": {
        "max_iterations": "rounds of a warm search, at most",
        "patience": "rounds without a better validation score after which a warm search ends",
    },
    "Simulation": {"tasks": "how the questions of each task behave"},
    "TaskTraits": {
        "skill": "by model: log-odds of being right on a question of average difficulty",
        "capacity": "by model: how much it can read before it loses the thread",
        "spread": "how much questions differ in difficulty",
        "favourite": "between which shares the most frequent wrong answer lies",
        "repair": "how well an assistant mends a wrong answer",
        "insight": "what reading an answer adds to skill when it is mended",
        "corrupt": "how often a right answer is made wrong",
        "majority": "how much a fuser follows the number of supporters",
        "discernment": "odds with which a fuser sees the right answer",
        "mend": "how well a fuser mends a wrong answer, against an assistant",
        "blur": "how fast discernment falls with what is read",
        "growth": "load that each earlier revision of an answer adds",
        "carry": "share of those revisions that stays in a fuser's answer",
        "steepness": "how fast the thread is lost around the capacity",
        "chance": "of being right once the thread is lost",
        "own": "share of a question's difficulty that is a family's own",
        "alike": "probability that a draw repeats what the model always says",
        "noise": "share of questions whose key is wrong",
    },
}
