"""Over real sockets: who is turned away first when places run out, and how an answer that did
without something says so.
"""

from __future__ import annotations

import threading

import httpx

from tests.support.project import HANGS_S
from tests.support.service import ALONE, FUSED, NAME, ask, chat, deployed, post, wait_for


def test_what_can_wait_is_turned_away_before_what_should_go_first(pool):
    with deployed(pool, ALONE, concurrency=4, tiers={"flex": 0.5, "default": 0.75}) as url:
        pool.holds = lambda body: True
        answers = []

        def begin(tier):
            held = len(pool.bodies)
            waiting = threading.Thread(
                target=lambda: answers.append(post(url, chat(service_tier=tier)).status_code)
            )
            waiting.start()
            wait_for(lambda: len(pool.bodies) == held + 1)
            return waiting

        begun = [begin("flex"), begin("flex")]
        assert post(url, chat(service_tier="flex")).status_code == 429
        begun.append(begin("auto"))
        refused = post(url, chat())
        assert refused.status_code == 429
        assert "service tier default" in refused.json()["error"]["message"]
        begun.append(begin("priority"))
        assert post(url, chat(service_tier="priority")).status_code == 429
        pool.release()
        for waiting in begun:
            waiting.join(HANGS_S)
        assert answers == [200] * 4
        assert post(url, chat(service_tier="flex")).status_code == 200
        assert post(url, chat(service_tier="gold")).status_code == 400
        figures = httpx.get(f"{url}/metrics").text
    for tier in ("flex", "default", "priority"):
        assert f'ttsgraph_shed_total{{model="{NAME}",tier="{tier}"}} 1.0' in figures


def test_a_stand_in_is_named_and_the_answer_says_that_it_is_degraded(pool):
    care = {"deadline_s": 0.5, "stand_ins": {"large": "small"}}
    with deployed(pool, FUSED, steady=care) as url:
        pool.holds = lambda body: body["model"] == "large"
        for stream in (False, True):
            answer = ask(url, stream=stream)
            origin = (list(answer)[-1] if stream else answer).model_extra["ttsgraph"]
            assert origin["stand_ins"] == [{"node": 2, "model": "large", "answered_by": "small"}]
            assert origin["degraded"] is True
        pool.release()
        assert ask(url).model_extra["ttsgraph"]["degraded"] is False
        figures = httpx.get(f"{url}/metrics").text
    assert f'ttsgraph_degraded_total{{model="{NAME}"}} 2.0' in figures
    assert f'ttsgraph_stood_in_total{{model="{NAME}"}} 2.0' in figures
