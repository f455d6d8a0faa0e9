"""What a view shows of a stage adds up from the stage's events."""

from functools import reduce

from ttsgraph.evaluation.progress import BestScore, Expense, IterationStart, QuestionDone, RunState
from ttsgraph.models.client import Usage


def test_a_view_knows_what_was_said_last_and_adds_up_the_calls():
    best, spent = BestScore(0.6, 0.5, 0.7, "iteration 1"), Expense(0.5, 90, 3.0)
    begun = IterationStart(2, 10, left=2)
    events = [BestScore(0.5, 0.4, 0.6, "a vote"), best, begun, spent]
    events += [QuestionDone(Usage(calls=2, completion_tokens=7))] * 3
    state = reduce(RunState.after, [*events, "found"], RunState("math", 40, 40))
    known = state.best, state.iteration, state.spent, state.outcome
    assert known == (best, begun, spent, "found")
    assert (state.total, state.left) == (40, 0)  # more were done than were left
    assert (state.usage.calls, state.usage.completion_tokens) == (6, 21)
