"""Alerts: each of contrib/alerts.yml fires in its case, and no other with it.

promtool evaluates the rules over made-up series, a sample a minute.
"""

import json
import re
import subprocess
import tempfile
from pathlib import Path

RULES = Path(__file__).resolve().parents[2] / "contrib/alerts.yml"
MINUTES = 30

Z = 'zone="main"'
W = 'zone="main",worker="w1"'

# All is well.
WELL = {
    f"kv_router_redis_up{{{Z}}}": "1x30",
    f'kv_router_worker_health{{{W},state="ok"}}': "1x30",
    f'kv_router_worker_health{{{W},state="failed"}}': "0x30",
    f'kv_router_worker_confidence{{{W},state="EXACT"}}': "1x30",
    f'kv_router_worker_confidence{{{W},state="DEGRADED"}}': "0x30",
    f'kv_router_decisions_total{{{Z},reason="policy"}}': "0+60x30",
    f'kv_router_decisions_total{{{Z},reason="tokenizer"}}': "0+2x30",
    f'kv_router_decisions_total{{{Z},reason="no_worker"}}': "0x30",
    f"kv_router_requests_total{{{Z}}}": "0+62x30",
    f"kv_router_peers_lag_seconds{{{Z}}}": "0.001x30",
    f"kv_router_policy_errors_total{{{Z}}}": "0x30",
    f"kv_router_policy_slow_total{{{Z}}}": "0x30",
    f"kv_router_prompt_blocks_total{{{Z}}}": "0+620x30",
    f"kv_router_best_overlap_blocks_total{{{Z}}}": "0+400x30",
    f'kv_router_worker_trust{{{W},route="chat",state="mismatch"}}': "0x30",
    f"kv_router_arena_used_bytes{{{Z}}}": "50x30",
    f"kv_router_arena_size_bytes{{{Z}}}": "100x30",
    f"kv_router_handles{{{Z}}}": "50x30",
    f"kv_router_handles_max{{{Z}}}": "100x30",
    f'kv_router_queue_waiting{{{Z},class="default"}}': "0 1 2 0x27",
    f'kv_router_queue_refused_total{{{Z},class="default",why="full"}}': "0x30",
    f'kv_router_queue_refused_total{{{Z},class="default",why="left"}}':
        "0+5x30",
    f"kv_router_queue_lost_wakes_total{{{Z}}}": "0 1 2 3 3x26",
    f"kv_router_queue_rebuilt_total{{{Z}}}": "0x30",
    'kv_relay_engine_up{worker="w1",rank="0",instance="a"}': "1x30",
    'kv_relay_complete{worker="w1",instance="a"}': "1x30",
    'kv_relay_active{worker="w1",instance="a"}': "1x30",
    # a standby hears no engine
    'kv_relay_engine_up{worker="w1",rank="0",instance="b"}': "0x30",
    'kv_relay_complete{worker="w1",instance="b"}': "0x30",
    'kv_relay_active{worker="w1",instance="b"}': "0x30",
}

# What is not well, by the alert that fires.
CASES = {
    "KvRouterRedisDown": {f"kv_router_redis_up{{{Z}}}": "1x10 0x20"},
    "KvRouterPeerLate": {
        f"kv_router_peers_lag_seconds{{{Z}}}": "0.001x10 0.2x20"},
    "KvRouterWorkerOut": {
        f'kv_router_worker_health{{{W},state="ok"}}': "1x10 0x20",
        f'kv_router_worker_health{{{W},state="failed"}}': "0x10 1x20"},
    "KvRouterViewNotTrue": {
        f'kv_router_worker_confidence{{{W},state="EXACT"}}': "1x10 0x20",
        f'kv_router_worker_confidence{{{W},state="DEGRADED"}}': "0x10 1x20"},
    "KvRouterRoutedByLoad": {
        f'kv_router_decisions_total{{{Z},reason="tokenizer"}}': "0+30x30"},
    "KvRouterNoWorker": {
        f'kv_router_decisions_total{{{Z},reason="no_worker"}}':
            "0x20 1+1x10"},
    "KvRouterPolicyFails": {
        f"kv_router_policy_errors_total{{{Z}}}": "0x20 1+1x10"},
    "KvRouterPolicySlow": {
        f"kv_router_policy_slow_total{{{Z}}}": "0x10 1+2x20"},
    "KvRouterMismatch": {
        f'kv_router_worker_trust{{{W},route="chat",state="mismatch"}}':
            "0x5 1x25"},
    "KvRouterMismatch (no match)": {
        f"kv_router_best_overlap_blocks_total{{{Z}}}": "0x30"},
    "KvRouterZoneFull": {f"kv_router_arena_used_bytes{{{Z}}}": "50x5 95x25"},
    "KvRouterZoneFull (handles)": {f"kv_router_handles{{{Z}}}": "50x5 80x25"},
    "KvRouterWaiting": {
        f'kv_router_queue_waiting{{{Z},class="default"}}': "0x10 3x20"},
    "KvRouterQueueRefuses": {
        f'kv_router_queue_refused_total{{{Z},class="default",why="full"}}':
            "0x20 1+1x10"},
    "KvRouterQueueWakesLost": {
        f"kv_router_queue_lost_wakes_total{{{Z}}}": "0x20 0+3x10"},
    "KvRouterQueueRebuilt": {
        f"kv_router_queue_rebuilt_total{{{Z}}}": "0x20 1x10"},
    "KvRelayEngineNotHeard": {
        'kv_relay_engine_up{worker="w1",rank="0",instance="a"}': "1x5 0x25"},
    "KvRelayIncomplete": {
        'kv_relay_complete{worker="w1",instance="a"}': "1x5 0x25"},
}


def alerts():
    """The names of the alerts that there are."""
    return set(re.findall(r"^ *- alert: (\w+)", RULES.read_text(),
                          re.MULTILINE))


def fires(name, changes):
    """Whether just this alert fires ("": none); and what promtool says."""
    unknown = set(changes) - set(WELL)
    assert not unknown, unknown
    wanted = [{"labels": f'{{alertname="{name}"}}', "value": 1}] if name \
        else []
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [{
            "interval": "1m",
            "input_series": [{"series": series, "values": values} for
                             series, values in {**WELL, **changes}.items()],
            "promql_expr_test": [{
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{MINUTES}m",
                "exp_samples": wanted}]}]}
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        json.dump(test, file)           # JSON is YAML
        file.flush()
        done = subprocess.run(["promtool", "test", "rules", file.name],
                              capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stdout + done.stderr
