#!/usr/bin/python3
"""Each list of words has one home in the code; its other places agree. TAP."""

import json
import re
import sys

from test_docs import ROOT, section, tap

API = json.loads((ROOT / "docs/openapi.json").read_text())[
    "components"]["schemas"]


def read(path):
    return (ROOT / path).read_text()


def rows(path, name):
    """The rows of a list X(…) of C: the words of each."""
    body = re.search(rf"#define {name}\(\w+\)(.*?[^\\])\n",
                     read(path), re.S)[1]
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    found = re.findall(r"\b(?:X|row)\(([^()]*(?:\([^()]*\)[^()]*)*)\)", body)
    assert found, name
    return [re.findall(r'\w+|"[^"]*"|-', row) for row in found]


def names(path, name):
    """The words of such a list: the first string of a row, or its name."""
    return [(row[1] if len(row) > 1 else row[0]).strip('"')
            for row in rows(path, name)]


def array(path, name):
    """The strings of the first array in braces after a name."""
    body = read(path)
    body = body[re.search(rf"\b{name}\b[^;]*?\{{", body).start():]
    return re.findall(r'"(\w+)"', re.search(
        r"=\s*\{([^{}]*)\};", body)[1])


def page(name):
    """The keys of an object of the status page."""
    body = re.search(rf"\nconst {name} = \{{(.*?)\}};",
                     read("ngx_module/status/status.html"), re.S)[1]
    body = re.sub(r'"(\\.|[^"\\])*"', '""', body)
    return re.findall(r"(\w+):", body)


def first(text):
    """The words of the first column of tables."""
    return re.findall(r"^\| `(\w+)` \|", text, re.M)


def told(text, after):
    """The words after a text, up to the end of a clause or a cell."""
    return re.findall(r"`(\w+)`", re.search(
        re.escape(after) + r"(.*?)[);|]", text, re.S)[1])


def same(found, words, where):
    """Not a test: a place has these words, each once, and no other."""
    assert sorted(found) == sorted(words), (
        where, sorted(set(found) ^ set(words)), found)


def reasons_of_decisions():
    """the reasons of decisions: documentation, status page"""
    words = names("ngx_module/module/ngx_http_kv_router_module.h",
                  "NGX_HTTP_KV_ROUTER_WHY_LIST")
    text = section("Variables").split("Reasons that are not the policy's")[1]
    same(first(text), set(words) - {"policy", "no_worker"}, "Variables")
    assert not set(page("BY_LOAD")) - set(words), page("BY_LOAD")


def reasons_of_views():
    """the confidences and their reasons: documentation, API, page, Lua"""
    words = names("src/fleet/kvr_fleet.h", "KVR_CONFIDENCES")
    views, text = section("Confidence").split("`reason` says why")
    same(first(views), words, "Confidence")
    same(API["Worker"]["properties"]["confidence"]["enum"], words, "the API")
    same(page("VIEW"), words, "the page")
    reasons = array("src/fleet/kvr_confidence.c", "kvr_degraded_name")
    reasons += re.findall(r'return "(\w+)"', read(
        "ngx_module/follow/ngx_http_kv_router_watch.c"))
    reasons += re.findall(r'"(\w+)"', re.search(
        r"\*reason = (.*?);", read("src/fleet/kvr_confidence.c"), re.S)[1])
    same(first(text.split("| filtered |")[0]), reasons, "reasons")
    same(page("REASON"), set(reasons) - {"none"}, "the page's reasons")
    policy = read("lua/resty/kv_router/policy.lua")
    missing = [word for word in words if f'"{word}"' not in policy]
    assert not missing, missing


def reasons_of_events():
    """the reasons of events: documentation"""
    text = section("Confidence").split("| filtered |")[1]
    same(re.findall(r"\| `(\w+)` (?=\|)", text),
         set(names("src/wire/kvr_event.h", "KVR_WHY_LIST")) - {"none"},
         "Confidence")


def engines_and_roles():
    """the kinds of engines and the roles: documentation, API, Lua"""
    words = names("src/wire/kvr_forms.h", "KVR_ENGINE_ROWS")
    settings = API["Settings"]["properties"]
    same(settings["engine"]["enum"], [*words, "unknown"], "the API")
    text = section("kv_router_worker")
    same(told(text, "how its requests are read: "), words, "kv_router_worker")
    same(told(section("Status and metrics"), "`engine` ("),
         [*words, "unknown"], "kv_router_worker_info")
    roles = array("src/wire/kvr_worker_conf.c", "kvr_roles")
    for schema in "Settings", "Worker":
        same(API[schema]["properties"]["role"]["enum"], roles, schema)
    policy = read("lua/resty/kv_router/policy.lua")
    missing = [word for word in words + roles if f'"{word}"' not in policy]
    assert not missing, missing


def forms():
    """the forms of requests: documentation"""
    words = names("src/wire/kvr_forms.h", "KVR_FORM_ROWS")
    same(re.findall(r"^\| [^|]+ \| `(\w+)` \|", section("Forms of requests"),
                    re.M), words, "Forms of requests")
    same(re.findall(r"^\| `…[^|]+ \| `(\w+)` \|", section("The echo"), re.M),
         set(words) - {"unknown", "no_prompt", "no_load"}, "The echo")


def healths():
    """states and failures of workers: documentation, status page, numbers"""
    path, text = "src/traffic/kvr_health", section("Status and metrics")
    words = array(path + ".c", "kvr_health_name")
    same(told(text, "`state` that it is in ("), words, "metrics")
    same(told(section("Health and retries"), "* `state`: ")[:len(words)],
         words, "Health and retries")
    same(page("HEALTH"), set(words) - {"ok"}, "the page")
    failures = array(path + ".c", "kvr_failure_name")
    same(re.findall(r"`(\w+)`", re.search(
        r"of these failed, by `kind`: (.*)", text)[1]), failures, "metrics")
    for enum, found in (("HEALTH", words), ("FAILED", failures)):
        declared = re.findall(rf"^    KVR_{enum}_(\w+)\b(?=[ ,])",
                              read(path + ".h"), re.M)
        assert [word.lower() for word in declared][:len(found)] == found, (
            declared, found)


def settings_of_workers():
    """the settings of workers: documentation, API"""
    body = re.search(r"kvr_settings\[KVR_SETTINGS\] = \{(.*?)\n\};",
                     read("src/wire/kvr_worker_conf.c"), re.S)[1]
    words = re.findall(r'\{ "(\w+)", KVR_SETTING_', body)
    assert len(words) > 9, words
    same(API["Settings"]["properties"], words, "the API")
    cells = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", section(
        "kv_router_worker"), re.M)
    same([word for cell in cells for word in re.findall(r"`(\w+)`", cell)],
         set(words) - {"address"}, "kv_router_worker")


def rungs():
    """where token ids come from: documentation, numbers"""
    words = array("ngx_module/status/ngx_http_kv_router_stats.c",
                  "ngx_http_kv_router_rung_names")
    declared = re.findall(r"#define NGX_HTTP_KV_ROUTER_BY_([A-Z]+) +\d",
                          read("ngx_module/module/ngx_http_kv_router_ffi.h"))
    assert [word.lower() for word in declared] == words, (declared, words)
    text = re.search(r"`kv_router_tokens_total` \|(.*)",
                     section("Status and metrics"))[1]
    missing = [word for word in words if f"`{word}`" not in text]
    assert not missing, missing


def tiers():
    """the tiers: documentation, numbers"""
    words = [word.lower() for word in re.findall(
        r"KVR_(\w+) = \d", re.search(r"typedef enum \{([^}]*)\} kvr_tier_t;",
                                     read("src/kvr.h"))[1])][:-1]
    printed = array("src/wire/kvr_router_event_print.c",
                    "kvr_router_event_tiers")
    assert [word.split("_")[0] for word in printed] == words, printed
    text = re.search(r'`tier` is (.*?) \|', section("Lua API"))[1]
    same(re.findall(r'`"(\w+)"`', text), words, "Lua API")


def counters():
    """the counters: each in the table of metrics, or of JSON's numbers"""
    text = section("Status and metrics")
    missing = []
    for row in rows("ngx_module/module/ngx_http_kv_router_counts.h",
                    "NGX_HTTP_KV_ROUTER_COUNTS"):
        _, place, key, metric = [word.strip('"') for word in row[:4]]
        json_rows = "".join(re.findall(rf"^\| `{place}` \|.*", text, re.M))
        if place == "echoes":
            json_rows = section("The echo")
        if metric == "NULL" and place and f"`{key}`" not in json_rows:
            missing.append(f"{place}.{key}")
        if metric != "NULL" and f"`kv_router_{metric}`" not in text:
            missing.append(metric)
    assert not missing, missing


if __name__ == "__main__":
    sys.exit(tap.run([
        reasons_of_decisions, reasons_of_views, reasons_of_events,
        engines_and_roles, forms, healths, settings_of_workers, rungs, tiers,
        counters]))
