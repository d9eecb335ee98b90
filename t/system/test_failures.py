#!/usr/bin/python3
"""What a client sees when engines fail, and what becomes of the engines; TAP.

w1 is asked first, w2 is well.  Every test begins with both well, and ends with
no load anywhere.
"""

import http.client
import socket
import sys
import threading
import time

from broken import EVENTS, Engine, Stage
from stage import PATIENCE, PROCESSES, wait_until

KEPT = 8                        # connections
ALLOWED = (r"upstream|connect\(\) failed|no live|recv\(\) failed"
           r"|kevent|peer closed", )

at = None                       # the stage, set by main()
w1 = w2 = None


def begin(**own):
    """w1 begins anew, with settings of its own; no connection is kept."""
    w1.die()
    w2.die()
    wait_until("nobody is at it", lambda: not w1.open + w2.open, PATIENCE)
    w1.mode = w2.mode = "ok"
    w1.pause = w2.pause = 0.5
    for engine in (w1, w2):
        at.call("DELETE", f"/kv/workers/{engine.name}")
        at.put(engine.name, address=engine.address,
               **(own if engine is w1 else {}))
        assert at.health_of(engine.name)["fails"] == 0
    w1.served = w2.served = 0


def failures(worker):
    """The failures of a worker, by kind, those that there are."""
    return {kind: n for kind, n in at.health_of(worker)["failures"].items()
            if n}


def has_failed(worker, kind, n):
    """Waits until that was counted: the client's end may come before."""
    wait_until(f"{worker} has failed {n} times: {kind}",
               lambda: failures(worker).get(kind, 0) == n, PATIENCE)


def fails_over(mode, *kinds):
    """A request that w1 fails is answered by w2, and w1's failure seen."""
    begin()
    before = sum(failures("w1").get(kind, 0) for kind in kinds)
    retries = at.status()["requests"]["retries"]
    w1.mode = mode
    answer = at.ask()
    assert (answer.status, answer.body, answer.worker) == (200, b"w2", "w2"), (
        answer.status, answer.body, answer.worker)
    health = at.health_of("w1")
    assert health["state"] == "ok" and health["fails"] == 1, health
    assert sum(failures("w1").get(kind, 0) for kind in kinds) == before + 1, (
        health)
    assert at.status()["requests"]["retries"] == retries + 1
    at.check_idle()


def a_refused_connection_fails_over():
    """a connection that is refused costs the client nothing"""
    fails_over("refuse", "connect")


def a_reset_connection_fails_over():
    """nor one that is reset at once"""
    fails_over("reset", "connect", "reset")


def a_reset_after_the_request_fails_over():
    """nor one that is reset when the request was sent"""
    fails_over("reset_after", "reset")


def a_bad_header_fails_over():
    """nor an answer that is none"""
    fails_over("garbage", "invalid")


def a_hanging_engine_fails_over():
    """nor an engine that never answers, but time"""
    fails_over("hang", "timeout")


def a_500_fails_over():
    """nor a status of proxy_next_upstream"""
    fails_over("error", "status")


def a_503_fails_over():
    """nor a 503"""
    fails_over("busy", "status")


def a_retry_after_is_a_pause():
    """a 503 with Retry-After is no failure: the engine has its pause"""
    begin()
    known = failures("w1")
    w1.mode = "later"
    answer = at.ask()
    assert answer.body == b"w2", answer.body
    health = at.health_of("w1")
    assert health["state"] == "away" and health["fails"] == 0, health
    assert failures("w1") == known, health
    served = w1.served
    assert at.ask().body == b"w2" and w1.served == served
    w1.mode = "ok"
    at.wait_health("w1", "ok")
    assert at.ask().body == b"w1"
    at.check_idle()


def a_slow_first_byte_is_no_failure():
    """an engine may take its time"""
    begin()
    w1.mode = "slow_first"
    assert at.ask().body == b"w1"
    assert at.health_of("w1")["fails"] == 0
    at.check_idle()


def a_slow_stream_is_no_failure():
    """and stream slowly"""
    begin()
    w1.mode, w1.pause = "slow_body", 2
    answer = at.ask()
    assert answer.whole and answer.body.count(b"data:") == EVENTS
    assert at.health_of("w1")["fails"] == 0
    at.check_idle()


def broken_stream(mode, kind):
    """What has begun is not begun again elsewhere."""
    begin()
    before = failures("w1").get(kind, 0)
    w1.mode = mode
    answer = at.ask()
    assert answer.status == 200 and not answer.whole, answer.body
    assert answer.worker == "w1" and w2.served == 0
    has_failed("w1", kind, before + 1)
    assert at.health_of("w1")["fails"] == 1
    at.check_idle()


def a_stream_that_is_cut_is_a_failure():
    """a stream that is cut is cut for the client, and a failure of w1"""
    broken_stream("cut", "cut")


def a_stream_that_stalls_is_a_failure():
    """so is one that stalls"""
    broken_stream("stall", "timeout")


def a_short_answer_is_a_failure():
    """so is an answer with fewer bytes than it said"""
    broken_stream("short", "cut")


def what_is_no_http_is_a_failure():
    """what is no HTTP at all goes to the client, as nginx does it"""
    begin()
    before = failures("w1").get("invalid", 0)
    w1.mode = "bare"
    try:
        assert b"what is this?" in at.ask().body
    except http.client.BadStatusLine:
        pass
    has_failed("w1", "invalid", before + 1)
    at.check_idle()


def a_client_that_goes_away_is_no_failure():
    """a client that goes away is nobody's failure"""
    begin()
    known = failures("w1")
    aborted = at.health_of("w1")["aborted"]
    w1.mode, w1.pause = "slow_body", 3
    go_away()
    wait_until("nginx has noticed", lambda: at.health_of("w1")["aborted"]
               == aborted + 1, PATIENCE)
    assert failures("w1") == known and at.health_of("w1")["fails"] == 0
    at.check_idle()


def go_away():
    """A client that asks, and leaves before the end."""
    with socket.create_connection(("127.0.0.1", at.port)) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                       b"Content-Length: 16\r\n\r\n{\"prompt\":[1,2]}")
        wait_until("w1 is at it", lambda: w1.open, PATIENCE)


def the_load_goes_where_the_request_goes():
    """while w2 is at it, the load is w2's alone"""
    begin()
    w1.mode, w2.mode = "refuse", "held"
    thread = threading.Thread(target=at.ask)
    thread.start()
    wait_until("w2 is at it", lambda: w2.open, PATIENCE)
    loads = {name: worker["load"][0]["active_requests"]
             for name, worker in at.workers().items()}
    w2.release()
    thread.join()
    assert loads == {"w1": 0, "w2": 1}, loads
    at.check_idle()


# ------------------------------------------------------------ circuit breaker

def break_w1(mode="refuse"):
    """w1 fails so often that it is out."""
    w1.mode = mode
    for _ in range(3):
        assert at.ask().body == b"w2"
    health = at.health_of("w1")
    assert health["state"] in ("failed", "half_open"), health


def failures_open_the_circuit():
    """after max_fails failures w1 is asked no more"""
    begin()
    opened = at.health_of("w1")["opened"]
    break_w1("reset_after")
    health = at.health_of("w1")
    assert health["state"] == "failed" and health["fails"] == 3, health
    assert health["opened"] == opened + 1 and health["retry_in"] > 1, health
    served = w1.served
    for _ in range(10):
        answer = at.ask()
        assert answer.body == b"w2" and answer.reason == "ok"
    assert w1.served == served
    at.check_idle()


def one_request_is_the_probe():
    """after fail_timeout one request at a time is let through"""
    begin(fail_timeout=5)
    break_w1("reset_after")
    w1.mode = "held"
    at.wait_health("w1", "half_open")
    served = w1.served
    answers = together(12, lambda answers: len(answers) == 11)
    bodies = [answer.body for answer in answers]
    assert bodies.count(b"w1") == 1, bodies
    assert bodies.count(b"w2") == 11, bodies
    assert w1.served == served + 1
    assert [answer.reason for answer in answers
            if answer.body == b"w1"] == ["half_open"]
    at.wait_health("w1", "ok")
    assert at.ask().body == b"w1"
    at.check_idle()


def together(n, until):
    """Requests at the same time; their answers.  w1 holds those that it has
    until something is so of the answers that there are."""
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(at.ask()))
               for _ in range(n)]
    for thread in threads:
        thread.start()
    try:
        wait_until("they are held", lambda: until(answers), PATIENCE)
    finally:
        w1.release()
        for thread in threads:
            thread.join()
    assert len(answers) == n
    return answers


def a_failed_probe_waits_longer():
    """a probe that fails costs the client nothing, and makes w1 wait longer"""
    begin(fail_timeout=2)
    break_w1()
    probes = at.health_of("w1")["probes"]
    at.wait_health("w1", "half_open")
    asked = time.monotonic()
    answer = at.ask()
    assert answer.body == b"w2" and answer.reason == "retry"
    health = at.health_of("w1")
    assert health["probes"] == probes + 1, health
    at.wait_health("w1", "half_open")
    assert time.monotonic() - asked > 3, "it waited no longer than at first"
    w1.mode = "ok"
    assert at.ask().body == b"w1"
    at.wait_health("w1", "ok")
    at.check_idle()


def a_probe_whose_client_leaves_makes_room():
    """a probe whose client leaves makes room for the next one"""
    begin(fail_timeout=5)
    break_w1()
    w1.mode = "held"
    at.wait_health("w1", "half_open")
    go_away()
    w1.mode = "ok"
    wait_until("there is room", lambda: at.ask().body == b"w1", PATIENCE)
    at.check_idle()


def nobody_else_is_left():
    """when all have failed they are asked all the same"""
    begin()
    w1.mode = w2.mode = "refuse"
    for _ in range(3):
        assert at.ask().status == 502
    assert at.health_of("w1")["state"] == "failed"
    assert at.health_of("w2")["fails"] == 3
    w1.mode = "ok"
    answer = at.ask()
    assert (answer.status, answer.body) == (200, b"w1"), answer.body
    assert at.health_of("w1")["state"] == "ok"
    at.check_idle()


def the_failed_come_last():
    """a failed worker is the last that is tried, before there is no answer"""
    begin()
    break_w1()
    w1.mode, w2.mode = "ok", "refuse"
    answer = at.ask()
    assert (answer.status, answer.body) == (200, b"w1"), answer.status
    assert at.health_of("w1")["state"] == "ok"
    at.check_idle()


def a_last_failure_counts_too():
    """a 500 that goes to the client, for want of others, is a failure"""
    begin()
    before = failures("w2").get("status", 0)
    w1.mode = w2.mode = "error"
    assert at.ask().status == 500
    has_failed("w2", "status", before + 1)
    at.check_idle()


def no_worker_is_asked_twice():
    """no worker is asked twice for one request"""
    begin()
    w1.mode = w2.mode = "reset_after"
    assert at.ask().status == 502
    assert (w1.served, w2.served) == (1, 1), (w1.served, w2.served)
    at.check_idle()


def max_fails_of_a_worker():
    """a worker's own max_fails goes before the zone's, without a reload"""
    begin(max_fails=0)
    w1.mode = "reset_after"
    for number in range(6):
        assert at.ask().body == b"w2" and w1.served == number + 1
    assert at.health_of("w1")["state"] == "ok"
    begin(max_fails=1)
    w1.mode = "reset_after"
    assert at.ask().body == b"w2"
    assert at.health_of("w1")["state"] in ("failed", "half_open")
    assert at.health_of("w1")["max_fails"] == 1
    at.check_idle()


def a_kept_connection_that_is_reset():
    """but a kept connection that is reset may be old: w1 has another chance"""
    begin()
    assert at.ask().body == b"w1"
    w1.mode = "reset_after"
    served = w1.served
    for _ in range(PROCESSES):
        assert at.ask().body == b"w2"
    assert w1.served - served in (PROCESSES, PROCESSES + 1), w1.served
    assert at.health_of("w1")["fails"] == PROCESSES
    at.check_idle()


def an_idle_connection_that_was_closed():
    """a kept connection that the engine has closed is no failure of it"""
    begin()
    assert at.ask().body == b"w1"
    w1.die()
    w1.mode = "ok"
    for _ in range(4):
        assert at.ask().body == b"w1"
    assert at.health_of("w1")["fails"] == 0
    at.check_idle()


def many_kept_connections_that_are_dead():
    """however many are kept: an engine that was switched off and on is well"""
    begin(max_fails=1)
    keep()
    for _ in range(2):
        w1.forget()
        served, known = w1.served, failures("w1")
        for _ in range(3 * PROCESSES):
            assert at.ask().body == b"w1"
        assert w1.served - served == 3 * PROCESSES
        health = at.health_of("w1")
        assert failures("w1") == known and health["state"] == "ok", health
        keep()
    at.check_idle()


def keep():
    """As many connections to w1 as are kept, all at once."""
    w1.mode = "held"
    answers = together(KEPT, lambda _: w1.open == KEPT)
    assert {answer.body for answer in answers} == {b"w1"}


# ------------------------------------------------- draining, slow start, hot

def draining_takes_nothing_new():
    """a draining worker ends its streams, and takes nothing new"""
    begin()
    w1.mode, w1.pause = "slow_body", 2
    answers = []
    thread = threading.Thread(target=lambda: answers.append(at.ask()))
    thread.start()
    wait_until("w1 is at it", lambda: w1.served, PATIENCE)
    at.drain("w1")
    assert at.ask().body == b"w2"
    thread.join()
    assert answers[0].whole and answers[0].worker == "w1", vars(answers[0])
    at.drain("w1", False)
    w1.mode = "ok"
    assert at.ask().body == b"w1"
    at.check_idle()


def a_draining_worker_is_no_retry():
    """nor is it retried at, when all others fail"""
    begin()
    w1.mode = "refuse"
    at.drain("w2")
    assert at.ask().status == 502 and w2.served == 0
    at.drain("w2", False)
    at.check_idle()


def who_comes_back_starts_slowly():
    """with slow_start, who comes back starts slowly"""
    begin(slow_start=60)
    health = at.health_of("w1")
    assert health["state"] == "slow_start" and health["share"] < 0.9, health
    assert at.ask().reason == "slow_start"
    begin()
    at.put("w1", address=w1.address, slow_start=60)
    at.drain("w1")
    at.drain("w1", False)
    assert at.health_of("w1")["state"] == "slow_start"
    begin(slow_start=60, fail_timeout=0.5, max_fails=1)
    break_w1()
    w1.mode = "ok"
    at.wait_health("w1", "half_open")
    assert at.ask().body == b"w1"
    assert at.health_of("w1")["state"] == "slow_start"
    begin()
    at.check_idle()


def a_reload_changes_it():
    """a reload changes the settings, and keeps what is known"""
    begin()
    w1.mode = "reset_after"
    assert at.ask().body == b"w2"
    at.change("max_fails=3", "max_fails=2")
    wait_until("the new ones answer", lambda: at.health_of("w1")["max_fails"]
               == 2, PATIENCE)
    assert at.ask().body == b"w2" and at.ask().body == b"w2"
    assert at.health_of("w1")["state"] in ("failed", "half_open")
    at.check_idle()


def checks_take_workers_out():
    """active checks take a worker out, and bring it back"""
    begin()
    at.change("max_fails=2", "max_fails=0 check=/health interval=200ms "
                             "timeout=60s fails=2")
    wait_until("both are checked", lambda: all(
        at.health_of(name)["checks"] for name in ("w1", "w2")), PATIENCE)
    assert at.health_of("w1")["checks_failed"] == 0
    w1.mode = "error"
    at.wait_health("w1", "down")
    assert at.ask().body == b"w2"
    w1.mode = "refuse"
    w2.mode = "refuse"
    at.wait_health("w2", "down")
    w2.mode = "ok"
    at.wait_health("w2", "ok")
    w1.mode = "ok"
    at.wait_health("w1", "ok")
    assert at.ask().body == b"w1"
    at.check_idle()


def the_metrics_say_it():
    """the metrics have it all"""
    text = at.call("GET", "/status?format=prometheus").decode()
    for line in ('kv_router_worker_health{zone="main",worker="w1",'
                 'state="ok"} 1\n',
                 'kv_router_worker_failures_total{zone="main",worker="w1",'
                 'kind="connect"} ',
                 'kv_router_worker_attempts_total{zone="main",worker="w1"} '):
        assert line in text, line


def the_log_is_quiet():
    """the log has what nginx says of its upstreams, and changes of health"""
    at.check_log(*ALLOWED)
    log = at.log()
    assert 'worker "w1" is out for 60000 ms after 1 failures' in log
    assert 'worker "w1" answers again' in log
    assert 'worker "w1" is down: 2 checks of "/health" failed' in log
    assert 'worker "w1" is up' in log


def main():
    """Runs the tests on one stage."""
    global at, w1, w2
    with Stage("failures") as at:
        w1, w2 = Engine("w1"), Engine("w2")
        at.start_nginx({"w1": w1.address, "w2": w2.address}, "order")
        return at.run([
            a_refused_connection_fails_over, a_reset_connection_fails_over,
            a_reset_after_the_request_fails_over, a_bad_header_fails_over,
            a_hanging_engine_fails_over, a_500_fails_over, a_503_fails_over,
            a_retry_after_is_a_pause, a_slow_first_byte_is_no_failure,
            a_slow_stream_is_no_failure, a_stream_that_is_cut_is_a_failure,
            a_stream_that_stalls_is_a_failure, a_short_answer_is_a_failure,
            what_is_no_http_is_a_failure,
            a_client_that_goes_away_is_no_failure,
            the_load_goes_where_the_request_goes, failures_open_the_circuit,
            one_request_is_the_probe, a_failed_probe_waits_longer,
            a_probe_whose_client_leaves_makes_room, nobody_else_is_left,
            the_failed_come_last, a_last_failure_counts_too,
            no_worker_is_asked_twice, max_fails_of_a_worker,
            a_kept_connection_that_is_reset,
            an_idle_connection_that_was_closed,
            many_kept_connections_that_are_dead, draining_takes_nothing_new,
            a_draining_worker_is_no_retry, who_comes_back_starts_slowly,
            a_reload_changes_it, checks_take_workers_out, the_metrics_say_it,
            the_log_is_quiet])


if __name__ == "__main__":
    sys.exit(main())
