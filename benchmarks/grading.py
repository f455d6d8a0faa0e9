"""How many programs are graded a second: HumanEval's own solutions, two at a time, as in a search on two cores. Prints JSON."""

import json
import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor

from pipeline.settings import load_profile
from pipeline.tasks import get_grader
from pipeline.tasks.sources import load_questions

AT_ONCE = 2
LIMIT_PER_S = 10.0


def main() -> None:
    task = get_grader("humaneval", accept_weaker=False)
    questions = load_questions(task, load_profile("laptop").task("humaneval").source, seed=0)
    before, started = os.times(), time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        passed = sum(pool.map(lambda question: task.grade(question, question.answer), questions))
    seconds, after = time.perf_counter() - started, os.times()
    processor = sum(after[:4]) - sum(before[:4])
    result = {
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "solutions": len(questions),
        "passed": passed,
        "graded a second": round(len(questions) / seconds, 1),
        "limit, a second": LIMIT_PER_S,
        "processor seconds each": round(processor / len(questions), 4),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
