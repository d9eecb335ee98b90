#!/usr/bin/env python3
"""kv-relay's options, and what its README says of them."""

import os
import subprocess
import sys

import test_relay
from relay import BUILD, RELAY
from stage import PATIENCE


class Options(test_relay.Tests):
    """Without an engine, most of them."""

    def options(self):
        """a wrong option is named, and ends it with code 2"""
        good = ["--worker", "w", "--events", "tcp://127.0.0.1:1"]
        for args, said in (
                ([], "--worker is missing"),
                (["--worker", "a b"], "is not an id"),
                (["--worker", "x" * 64], "is not an id"),
                (["--worker", "w"], "--events or --trtllm is needed"),
                (good + ["--trtllm", "http://h"], "one of them"),
                (["--worker", "w", "--trtllm", "h:80"], "is not a http://"),
                (["--worker", "w", "--events", "127.0.0.1:1"],
                 "--events \"127.0.0.1:1\" is neither"),
                (["--worker", "w", "--events", "tcp://h:99999"], "--events"),
                (["--worker", "w", "--events", "tcp://*:5557"],
                 '--events "tcp://*:5557": "*" is an address to listen at, '
                 "which is for the engine: give the engine's host"),
                (good + ["--replay", "tcp://*:5657"],
                 '--replay "tcp://*:5657": "*" is an address to listen at'),
                (good + ["--ranks", "0"], "--ranks must be 1 to 64"),
                (good + ["--first-rank", "-1"], "--first-rank"),
                (good + ["--first-rank", "1023", "--ranks", "2"],
                 "--first-rank 1023 and 2 ranks are more than the 1024"),
                (good + ["--ranks", "x"], "--ranks \"x\" is not a number"),
                (good + ["--replay", "tcp://h:1", "--replay", "tcp://h:2"],
                 "--replay is there 2 times"),
                (good + ["--block-size", "2000"], "--block-size must be"),
                (good + ["--block-size"], "--block-size has no value"),
                (good + ["--refcount", "yes"], "--refcount must be on or off"),
                (good + ["--role", "boss"], "--role must be"),
                (good + ["--engine", "mlc"], "--engine must be"),
                (good + ["--engine", "unknown"], "--engine must be"),
                (good + ["--weight", "-1"], "--weight must be"),
                (good + ["--weight", "nan"], "--weight must be"),
                (good + ["--max-prefill-tokens", "all"],
                 "--max-prefill-tokens must be 0 to 1000000000, or auto, "
                 "not"),
                (good + ["--lora", "a,\u00e9"], "--lora must be"),
                (good + ["--lora", "x" * 512], "--lora must be"),
                (good + ["--memory", "1k"], "--memory must be"),
                (good + ["--memory", "7m"], "--memory must be 8388608"),
                (good + ["--memory", "99999999999g"], "--memory must be"),
                (good + ["--memory", "64q"], "is not a size"),
                (good + ["--ring", "64m"],
                 "--ring is removed: it is a quarter of --memory"),
                (good + ["--ring"], "--ring is removed"),
                (good + ["--message-max=64m"],
                 "--message-max is removed: it is half of --memory"),
                (good + ["--deregister", "off"], "--deregister is removed"),
                (good + ["--trtllm-interval", "5"],
                 "--trtllm-interval is removed: it is 100 ms"),
                (good + ["--redis", "http://h"], "--redis URL 1 begins"),
                (good + ["--redis", "rediss://:sEcr3t@h:x"], "wrong port"),
                (good + ["--redis-ca", "x"], "has no rediss:// URL"),
                (good + ["--redis", "rediss://h", "--redis-cert", "x"],
                 "--redis-cert and --redis-key go together"),
                (good + ["--redis", "redis://:sEcr3t@h:x"], "wrong port"),
                (good + ["--address", "host"], "is not host:port"),
                (good + ["--listen", "9090"], "is not host:port"),
                (good + ["--listen", "h:65536"], "is not host:port"),
                (good + ["--channel", "c" * 91], "--channel is longer"),
                (good + ["--reddis=redis://:sEcr3t@h"], "--reddis there"),
                (good + ["redis://:sEcr3t@h"], "is not an option"),
                (good + ["--log-level", "loud"], "--log-level must be"),
                (good + ["--shout"], "there is no such option"),
                (good + ["--groups", "off"], "--groups is removed: KV cache "
                 "groups are always passed on"),
                (good + ["shout"], "is not an option")):
            done = subprocess.run([RELAY, *args], capture_output=True,
                                  text=True, timeout=PATIENCE)
            assert done.returncode == 2, (args, done)
            assert said in done.stderr, (args, done.stderr)
            assert "sEcr3t" not in done.stderr
            assert not done.stdout

    def secrets(self):
        """a URL that is in the wrong place is not repeated"""
        url = "redis://:sEcr3t@h:1"
        good = ["--worker", "w", "--events", "tcp://127.0.0.1:1"]
        for args, said in (
                (["--worker", "w", "--trtllm", "u:sEcr3t@h:8000"], "--trtllm"),
                (["--worker", "w", "--trtllm", url], "--trtllm"),
                (["--worker", "w", "--events", url], "--events"),
                (["--worker", url], "--worker"),
                (good + ["--" + url], "argument 5 is no option"),
                *((good + [option, url], option) for option in (
                    "--replay", "--ranks", "--memory", "--eagle", "--role",
                    "--weight", "--max-prefill-tokens", "--log-level",
                    "--redis-ca", "--redis-key", "--address", "--listen"))):
            done = subprocess.run([RELAY, *args], capture_output=True,
                                  text=True, timeout=PATIENCE)
            assert done.returncode == 2, (args, done)
            assert said in done.stderr, (args, done)
            assert "sEcr3t" not in done.stderr, (args, done)
        for files in (["--redis-ca", url], ["--redis-cert", url,
                                            "--redis-key", url]):
            done = subprocess.run(
                [RELAY, *good, "--redis", "rediss://h:1", *files],
                capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 1 and files[0] in done.stderr, done
            assert "sEcr3t" not in done.stderr, done
        done = subprocess.run(
            [RELAY], capture_output=True, text=True, timeout=PATIENCE, env={
                **os.environ, "KV_RELAY_WORKER": "w",
                "KV_RELAY_TRTLLM": "u:sEcr3t@h:8000"})
        assert done.returncode == 2 and "--trtllm" in done.stderr
        assert "sEcr3t" not in done.stderr

    def endpoints(self):
        """each endpoint is there once, those of further ranks, too"""
        for args, said in (
                (["tcp://h:5557", "tcp://h:5558", "--ranks", "2"],
                 '--replay "tcp://h:5558" is there twice, for --events rank 1'
                 " and --replay rank 0"),
                (["tcp://h:5558", "tcp://h:5557", "--ranks", "2"],
                 '--replay "tcp://h:5558" is there twice, for --events rank 0'
                 " and --replay rank 1"),
                (["tcp://h:5557", "tcp://h:5620", "--ranks", "64"],
                 '--replay "tcp://h:5620"'),
                (["tcp://h:1", "tcp://h:1"], '--replay "tcp://h:1" is there'),
                (["ipc:///a", "ipc:///a"], '--replay "ipc:///a" is there'),
                (["tcp://u:sEcr3t@h:1", "tcp://u:sEcr3t@h:1"], "is there"),
                (["tcp://h:1", "tcp://h:9", "--events", "tcp://h:2",
                  "--replay", "tcp://h:9"], '--replay "tcp://h:9" is there'),
                (["tcp://h:1", "tcp://h:9", "--events", "tcp://h:1",
                  "--replay", "tcp://h:8"], '--events "tcp://h:1" is there')):
            done = subprocess.run(
                [RELAY, "--worker", "w", "--events", args[0], "--replay",
                 *args[1:]], capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 2, (args, done)
            assert said in done.stderr, (args, done.stderr)
            assert "sEcr3t" not in done.stderr
        for args in (["tcp://h:5557", "tcp://h:5657", "--ranks", "64"],
                     ["tcp://h:5557", "tcp://h:5559", "--ranks", "2"],
                     ["tcp://h:1", "tcp://g:1", "--ranks", "64"],
                     ["ipc:///a", "ipc:///b"]):
            done = subprocess.run(
                [RELAY, "--worker", "w", "--redis-ca", "/nowhere", "--redis",
                 "rediss://127.0.0.1:1", "--events", args[0], "--replay",
                 *args[1:]], capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 1, (args, done)

    def environment(self):
        """options come from the environment, too; the command line wins"""
        done = subprocess.run(
            [RELAY, "--block-size", "16"], capture_output=True, text=True,
            timeout=PATIENCE, env={
                **os.environ, "KV_RELAY_WORKER": "w",
                "KV_RELAY_EVENTS": "tcp://127.0.0.1:1",
                "KV_RELAY_BLOCK_SIZE": "5000", "KV_RELAY_ROLE": "x"})
        assert "--block-size must be" in done.stderr
        done = subprocess.run(
            [RELAY, "--role", "boss"], capture_output=True, text=True,
            timeout=PATIENCE, env={
                **os.environ, "KV_RELAY_WORKER": "w",
                "KV_RELAY_EVENTS": "tcp://127.0.0.1:1",
                "KV_RELAY_ROLE": "both"})
        assert '--role must be' in done.stderr and done.returncode == 2
        done = subprocess.run(
            [RELAY], capture_output=True, text=True, timeout=PATIENCE, env={
                **os.environ, "KV_RELAY_WORKER": "w",
                "KV_RELAY_EVENTS": "tcp://127.0.0.1:1",
                "KV_RELAY_GROUPS": "on"})
        assert "--groups is removed" in done.stderr and done.returncode == 2

    def help(self):
        """--help explains every option; all of them are in its README"""
        done = subprocess.run([RELAY, "--help"], capture_output=True,
                              text=True, timeout=PATIENCE)
        assert done.returncode == 0
        readme = (BUILD.parent / "relay" / "README.md")
        options = [w for w in done.stdout.split() if w.startswith("--")]
        assert len(set(options)) > 20
        if readme.is_file():
            text = readme.read_text()
            for option in set(options):
                assert option.strip("[].,:") in text, option


if __name__ == "__main__":
    sys.exit(test_relay.main(Options, "relay-options"))
