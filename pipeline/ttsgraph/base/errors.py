"""The exceptions of ttsgraph.

TTSGraphError
├── InputError            what a person gave can't be used: one line, exit code 2
│   ├── SettingsError     params.yaml or a profile
│   ├── GraphError        a collaboration graph: cycle, two sinks, unknown role ...
│   ├── BudgetError       a budget that holds nothing
│   ├── DataError         a source, a question file, a table between stages
│   ├── EndpointError     an endpoint that refuses, or lacks the model that was asked for
│   └── DeploymentError   a name under which nothing is deployed
├── CallFailed            one model call failed for good: its question is unscored, never wrong
│   └── FormRefused       an endpoint does not answer in the form that a client wishes
├── ContextOverflow       a prompt does not fit its model: the graph's doing, so its node has no
│                         answer, and is graded so
└── RunStopped            a run stopped early with its state kept (too many failures): exit code 3
    └── LimitReached      a search has spent what its profile's `limits` allow: exit code 4
"""


class TTSGraphError(Exception):
    """Base of everything ttsgraph raises on purpose."""


class InputError(TTSGraphError):
    """Something a person gave can't be used; the message says what was expected and what came."""


class SettingsError(InputError):
    """params.yaml or a profile has an unknown key, a wrong type or an impossible value."""


class GraphError(InputError):
    """A collaboration graph breaks a rule: acyclic, one sink, known nodes, roles and models."""


class BudgetError(InputError):
    """A budget in which not even the smallest call fits."""


class DataError(InputError):
    """A source, question file or table is missing, unreadable or fails its checks."""


class EndpointError(InputError):
    """An endpoint can't be reached, or doesn't serve the model that was asked for."""


class DeploymentError(InputError):
    """A name (`task@alias`) under which nothing is deployed."""


class CallFailed(TTSGraphError):
    """A model call failed after all retries. Infrastructure, not a wrong answer."""


class FormRefused(CallFailed):
    """An endpoint refuses what the form of a request asks for (tools, a JSON schema, choices).

    `said` are the endpoint's words, in one line without secrets.
    """

    def __init__(self, message: str, said: str) -> None:
        super().__init__(message)
        self.said = said


class ContextOverflow(TTSGraphError):
    """A prompt is longer than its model's context.

    Sent again it would be refused again, and a larger graph makes it likelier, so it is no
    infrastructure failure: left unscored it would favour graphs with long prompts.
    """


class RunStopped(TTSGraphError):
    """A run ended early; everything computed so far is kept and the next start continues."""


class LimitReached(RunStopped):
    """A search has spent as many dollars, tokens or seconds as it may; with a higher limit the next
    start continues.
    """
