#!/usr/bin/python3
"""The status page, in a headless Chromium, beside real fleets that are well
and that are not: what it says, that it fits, and that it can be read.

    t/page/check.py [--module FILE] [--relay FILE] [--readme FILE]

Screenshots are written below build/page.  --readme takes the one of README.md
instead of the tests.
"""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path[:0] = [str(REPOSITORY / "demo")]

# pylint: disable=wrong-import-position
import tap                                                      # noqa: E402
from fleet import (Engines, Policy, add_options, http, session)  # noqa: E402
from processes import Process, free_port, wait_until            # noqa: E402

PACKAGES = ("playwright-core@1.65.1", "axe-core@4.14.1")
ENGINES = Engines(blocks=24_000, prefill_us=35, model=True)
# The tests send token ids: texts are late where the machine is busy, and the
# page says so.
LOAD = ("--requests", "400", "--speedup", "6.5", "--scale", "4")
MANY = 512                      # workers
OUT = 3                         # of these, without an engine
WINDOWS = [(width, scheme) for width in (1440, 390)
           for scheme in ("light", "dark")]
README_BYTES = 200_000          # of its screenshot, at most
README_STEPS = 20               # of the history, in that screenshot

# what the page says at its top: the headline, and all that is wrong
SAID = """() => ({
    headline: document.querySelector("#headline").textContent,
    level: document.querySelector("#verdict").className,
    found: [...document.querySelectorAll("#findings li")]
        .map(e => e.textContent),
    tiles: Object.fromEntries([...document.querySelectorAll(".tile")].map(
        e => [e.querySelector("h3").textContent,
              e.querySelector(".value").textContent])),
    rows: document.querySelectorAll("#rows tr.row").length,
    squares: [...document.querySelectorAll("#strip i")]
        .map(e => e.className),
    zones: [...document.querySelectorAll("#zones a")].map(e =>
        [e.textContent, e.getAttribute("href")]),
    sparks: [...document.querySelectorAll(".spark:not(.hidden)")].length,
    sections: [...document.querySelectorAll("section:not(.hidden)")]
        .map(e => e.id),
    nodes: document.querySelectorAll("#tree .node").length,
    markup: document.querySelectorAll("main b, main img").length,
    text: document.querySelector("main").textContent
})"""

fleet = None                    # set by main()
zones = None                    # the URL of the nginx of zones.conf.in
shots = None                    # where screenshots go


# ------------------------------------------------------------------ browser

def install(folder):
    """npm's packages, once."""
    stamp, wanted = folder / "installed", " ".join(PACKAGES)
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["npm", "install", "--prefix", folder, "--no-audit",
                    "--no-fund", "--ignore-scripts", "--loglevel", "error",
                    *PACKAGES], check=True)
    stamp.write_text(wanted)


def browse(visits):
    """What browser.mjs found at each visit."""
    done = subprocess.run(
        ["node", HERE / "browser.mjs", shots, shutil.which("chromium")],
        input=json.dumps(visits), text=True, stdout=subprocess.PIPE,
        check=True, timeout=600)
    return json.loads(done.stdout)


def says(words):
    """The source of: the headline has these words."""
    return ("() => document.querySelector('#headline').textContent"
            f".includes({json.dumps(words)})")


def look(name, url, until):
    """Visits a page in all windows; what it says in the first one.

    In each it must come to be what it should, without an error, without
    anything that is wider than the window, and with enough contrast.
    """
    found = browse([{
        "url": url, "width": width, "scheme": scheme, "until": until,
        "look": SAID, "axe": True,
        "shot": str(shots / f"{name}-{width}-{scheme}.png")}
        for width, scheme in WINDOWS])
    for window, one in zip(WINDOWS, found):
        where = f"{name}, {window}: {one.get('look')}"
        assert not one["errors"], f"{one['errors']} at {where}"
        assert one["waited"], f"not as expected at {where}"
        assert not one["overflow"], f"{one['overflow']} at {where}"
        assert not one["axe"], f"{one['axe']} at {where}"
    return found[0]["look"]


def is_said(said, *words):
    """Each of the words is in what is told to be wrong, or in how it is."""
    told = "\n".join(said["found"])
    for word in words:
        assert re.search(word, told), (word, told)


# ------------------------------------------------------------------- states

def no_workers():
    """without workers the page says so, and what to do"""
    said = look("no-workers", f"{zones}/status/none", f"""() =>
        ({says("no workers")})()
        && document.querySelector("#caches").textContent
            .includes("texts: ")""")
    assert said["level"] == "card bad", said
    is_said(said, "status 503", "Start a kv-relay beside each engine")
    assert said["tiles"]["Workers well"] == "0 of 0", said
    assert said["zones"] == [[name, f"/status/{name}"]
                             for name in ("none", "many", "full", "queue")], said


def many_workers():
    """512 workers: those that are out are told, 25 rows are drawn"""
    engine, out = f"127.0.0.1:{engines_port}", f"127.0.0.1:{free_port()}"
    for number in range(MANY):
        body = {"address": engine, "ranks": 1}
        if number < OUT:
            body = {"address": out}
        elif number == OUT:
            body["model"] = "<b>bold</b><img src=x onerror=alert(1)>"
        http("PUT", f"{zones}/many/workers/w{number}", body)
    for number in range(40):
        http("POST", f"{zones}/v1/completions",
             {"prompt": list(range(number, number + 40))})
    said = look("many-workers", f"{zones}/status/many", f"""() =>
        ({says("3 of 512 workers are out")})()
        && document.querySelectorAll("#strip i.bad").length === {OUT}""")
    assert said["level"] == "card bad", said
    assert "w0, w1 and w2" in said["headline"], said
    is_said(said, "Requests go to the 509 other workers", "Since")
    assert said["rows"] == 25, said["rows"]
    assert len(said["squares"]) == MANY, said["squares"]
    assert "Show 25 more of 487" in said["text"], said["text"]


def many_can_be_filtered():
    """of 512 workers one is found by its name, its state, and its square"""
    type_in = """() => {
        const e = document.querySelector("#filter");
        e.value = %s;
        e.dispatchEvent(new Event("input"));
    }"""
    rows = """() => [...document.querySelectorAll("#rows .name")]
        .map(e => e.textContent)"""
    drawn = "() => document.querySelectorAll('#rows tr.row').length === 25"
    names = [one["look"] for one in browse([
        {"url": f"{zones}/status/many", "width": 1440, "scheme": "light",
         "until": drawn, "then": then, "look": rows}
        for then in (type_in % '"w417"', type_in % '"active checks"', """() =>
            document.querySelector('#strip i[title="w31"]').click()"""
                     )])]
    assert names[0] == ["w417"], names
    assert names[1] == ["w0", "w1", "w2"], names
    assert "w31" in names[2], names


def names_are_no_markup():
    """what a worker says of itself is text, never markup"""
    said = browse([{
        "url": f"{zones}/status/many", "width": 390, "scheme": "light",
        "until": "() => document.querySelectorAll('#rows .row').length > 0",
        "then": f"""() => {{
            const e = document.querySelector("#filter");
            e.value = "w{OUT}";
            e.dispatchEvent(new Event("input"));
            document.querySelector("#rows .name").click();
        }}""", "look": SAID}])[0]["look"]
    assert "<b>bold</b><img src=x onerror=alert(1)>" in said["text"], said
    assert said["markup"] == 0, said


def a_full_zone():
    """a zone that is full is told, with its size"""
    http("PUT", f"{zones}/full/workers/w1", {"address": "127.0.0.1:1"})
    number = 1
    while fill() < .95:
        blocks = [{"block_hash": number + i, "tokens_hash": number + i}
                  for i in range(4000)]
        number += len(blocks)
        http("POST", f"{zones}/full/events", {
            "worker_id": "w1", "event": {"event_id": number, "dp_rank": 0,
                "data": {"stored": {"parent_hash": None,
                                    "blocks": blocks}}}})
    said = look("full", f"{zones}/status/full", says("full"))
    assert said["level"] == "card warn", said
    is_said(said, "not used for longest are forgotten", r"it has \d+ MiB")
    assert re.match(r"9\d\.\d\s% of|100\s% of", said["tiles"]["Zone filled"])


def fill():
    """How full the zone "full" is, 0 to 1."""
    status = json.loads(http("GET", f"{zones}/status/full"))
    index, memory = status["index"], status["memory"]
    return max(memory["arena_used"] / memory["arena_bytes"],
               index["handles"] / index["handles_max"],
               index["runs"] / index["runs_max"])


def who_waits():
    """who waits for room is told, of which class and tenant, and since when"""
    http("PUT", f"{zones}/queue/workers/w1",
         {"address": f"127.0.0.1:{engines_port}", "max_active": 1})
    port = int(zones.rpartition(":")[2])
    open_ones = []
    for number, (kind, tenant) in enumerate((
            ("interactive", "team-a"), ("batch", "team-a"), ("batch", "x"))):
        one = socket.create_connection(("127.0.0.1", port))
        one.sendall(f"POST /hold HTTP/1.0\r\nx-class: {kind}\r\n"
                    f"x-tenant: {tenant}\r\n\r\n".encode())
        open_ones.append(one)
        wait_until("it is served, or waits", lambda n=number: n == json.loads(
            http("GET", f"{zones}/status/queue"))["waiting"])
    said = look("queue", f"{zones}/status/queue", says("2 requests wait"))
    is_said(said, r"Since\d+\s")
    assert "queue" in said["sections"], said
    for words in ("2 of 100 places taken", r"batch \(class\)2\d+\ss0",
                  r"interactive \(class\)0–1", r"team-a1\d+\ss1",
                  r"[0-9a-f]{8}1\d+\ss0", "other0–0"):
        assert re.search(words, said["text"]), (words, said["text"])
    for one in open_ones:
        one.close()


def a_refused_reload():
    """a reload that was refused is told, with what is wrong"""
    conf = fleet.directory / "zones.conf"
    text = conf.read_text()
    conf.write_text(text.replace('policy = "p2c"', 'policy = "p3c"'))
    fleet.processes["zones"].signal(signal.SIGHUP)
    said = look("refused-reload", f"{zones}/status/many", """() =>
        document.querySelector("#findings").textContent.includes("p3c")""")
    is_said(said, "The last reload was refused", "goes on", r"Since\d+\s")
    assert said["tiles"]["Policy"] == "p2c", said


def without_script():
    """a browser without script shows a link to the numbers"""
    found = browse([{"url": f"{zones}/status/many", "width": 1440,
                     "scheme": "light", "bare": True,
                     "shot": str(shots / "bare-1440-light.png")}])[0]
    assert not found["errors"], found
    assert found["link"] == "?format=json", found


def all_is_well():
    """four workers under load: all is well, and the figures are there"""
    said = look("well", f"{fleet.url}/status", f"""() =>
        ({says("All is well.")})()
        && document.querySelectorAll(".spark:not(.hidden)").length >= 5
        && document.querySelectorAll("#tree .node").length > 4
        && document.querySelectorAll("#decisions .row").length === 10""")
    assert said["level"] == "card good" and not said["found"], said
    assert said["sections"] == ["workers", "decisions", "prefixes",
                                "prefix-tree", "rest"], said
    assert said["nodes"] > 4, said
    tiles = said["tiles"]
    assert tiles["Workers well"] == "4 of 4", tiles
    assert tiles["Policy"] == "kv_cost", tiles
    for name in ("Cache hit rate", "Requests", "Time to first byte", "Events",
                 "Zone filled", "Tokens known"):
        assert re.match(r"[1-9\d]", tiles[name]), tiles
    assert said["rows"] == 4, said


def relays_are_dead():
    """two dead relays: the page says of which workers, and since when"""
    for worker in ("w1", "w2"):
        fleet.processes.pop(f"{worker}-relay").stop()
    said = look("relays-dead", f"{fleet.url}/status",
                says("2 of 4 workers are not heard: w1 and w2."))
    assert said["level"] == "card warn", said
    is_said(said, r"Since\d+\s", "Requests go on", "whether kv-relay runs")
    assert said["tiles"]["Workers well"] == "2 of 4", said


def redis_is_down():
    """Redis is down: what it means, and that nothing is to be done here"""
    fleet.processes.pop("redis").stop()
    said = look("redis-down", f"{fleet.url}/status", says("Redis is down"))
    assert said["level"] == "card bad", said
    is_said(said, r"Since\d+\s", "Requests go on", "connects by itself")
    assert said["tiles"]["Workers well"] == "0 of 4", said


def nginx_is_gone():
    """a page that is open says when nothing answers any more"""
    found = browse([{
        "url": f"{fleet.url}/status", "width": 1440, "scheme": "light",
        "until": says("Redis is down"), "offline": says("does not answer"),
        "look": SAID, "shot": str(shots / "gone-1440-light.png")}])[0]
    assert found["waited"], found
    is_said(found["look"], "See whether nginx runs")


# --------------------------------------------------------------------- main

engines_port = None             # of the engine of zones.conf.in


def start_zones():
    """Starts the nginx of zones.conf.in; its URL."""
    global engines_port         # pylint: disable=global-statement
    engines_port = free_port()
    port = free_port()
    names = {"MODULE": str(fleet.module), "PORT": str(port),
             "ENGINE": str(engines_port), "LUA": str(REPOSITORY / "lua"),
             "USER": "user  root;" if os.geteuid() == 0 else ""}
    conf = re.sub(r"@([A-Z]+)@", lambda name: names[name[1]],
                  (HERE / "zones.conf.in").read_text())
    (fleet.directory / "zones.conf").write_text(conf)
    fleet.processes["zones"] = Process(
        "zones", ["nginx", "-p", f"{fleet.directory}/", "-c", "zones.conf",
                  "-e", "zones.log"], fleet.directory)
    url = f"http://127.0.0.1:{port}"
    wait_until("nginx answers",
               lambda: http("GET", url + "/status/none") is not None)
    return url


def work(done, options):
    """Replays until it is told to end, or until the fleet breaks."""
    while not done.is_set():
        fleet.replay(options, progress=False)


def under_load(look_at, *options):
    """Calls it while the demo's load runs."""
    done = threading.Event()
    load = threading.Thread(target=work, args=(done, LOAD + options),
                            daemon=True)
    load.start()
    try:
        look_at()
    finally:
        done.set()
        load.join()


def well_under_load():
    """four workers under load: all is well, and the figures are there"""
    under_load(all_is_well)


def take(file):
    """Takes the screenshot of README.md, once the graphs have something to
    show."""
    url = f"{fleet.url}/status"

    def shown():
        history = json.loads(http("GET", url + "?part=history"))
        known = [n for n in history["series"]["requests"] if n]
        return len(known) >= README_STEPS

    def shoot():
        wait_until("the history is long enough", shown, 900)
        browse([{"url": url, "width": 1440, "scheme": "light",
                 "until": f"""() => ({says("All is well.")})()
                     && document.querySelector(".spark path")""",
                 "upto": "#workers", "shot": str(file.resolve())}])

    # sessions of agents: long prompts, most of which an engine has
    under_load(shoot, "--text", "--agents", "24")
    size = file.stat().st_size
    print(f"{file}: {size} bytes")
    return 0 if size <= README_BYTES else 1


def run(one, readme):
    """The checks, or the screenshot; the status of the program."""
    global fleet, zones         # pylint: disable=global-statement
    fleet = one
    fleet.start(Policy("kv_cost"))
    if readme:
        return take(readme)
    zones = start_zones()
    started = time.monotonic()
    status = tap.run([no_workers, many_workers, many_can_be_filtered,
                      names_are_no_markup, a_full_zone, who_waits,
                      a_refused_reload, without_script,
                      well_under_load, relays_are_dead, redis_is_down,
                      nginx_is_gone])
    print(f"# {time.monotonic() - started:.0f} s; screenshots are in {shots}")
    return status


def main():
    """The program."""
    global shots                # pylint: disable=global-statement
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n",
                                                               maxsplit=1)[0])
    add_options(parser)
    parser.add_argument("--folder", metavar="DIR", type=Path,
                        default=REPOSITORY / "build/page",
                        help="for npm's packages and screenshots")
    parser.add_argument("--readme", metavar="FILE", type=Path,
                        help="take this screenshot only")
    options = parser.parse_args()
    shots = options.folder.resolve()
    install(shots)
    return session(options, ENGINES, lambda one: run(one, options.readme))


if __name__ == "__main__":
    sys.exit(main())
