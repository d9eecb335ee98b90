#!/usr/bin/python3
"""kv-model-dump: what it reads of an engine's command line; TAP.

The archive itself is made by an engine's Python: t/vectors/model is one.
"""

import contextlib
import hashlib
import importlib.util
import io
import json
import subprocess
import sys
import tempfile
from importlib.machinery import SourceFileLoader
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "demo"))

import tap                                                  # noqa: E402
from processes import Process, WAIT_SECONDS, wait_until     # noqa: E402

DUMP = ROOT / "util/kv-model-dump"
MODEL = ROOT / "t/vectors/model"

sys.dont_write_bytecode = True
LOADER = SourceFileLoader("dump", str(DUMP))
dump = importlib.util.module_from_spec(importlib.util.spec_from_loader(
    "dump", LOADER))
LOADER.exec_module(dump)

at = None                                   # a folder, set by main()


def flags(kind, line):
    """What is kept of a command line, and the unknown flags."""
    return dump.flags(kind, line.split())


def refused(kind, line):
    """Why a command line is refused."""
    try:
        flags(kind, line)
    except dump.Refused as e:
        return str(e)
    raise AssertionError("it is not refused")


def kept_flags():
    """flags that change token ids are kept, others are not"""
    kept, unknown = flags(
        "vllm", "vllm serve m --port 8000 --tensor-parallel-size=8 "
        "--chat-template-content-format openai "
        "--default-chat-template-kwargs {\"enable_thinking\":false} "
        "--exclude-tools-when-tool-choice-none --no-enable-auto-tool-choice "
        "--reasoning_parser qwen3")
    assert kept == {
        "chat_template_content_format": "openai",
        "default_chat_template_kwargs": {"enable_thinking": False},
        "exclude_tools_when_tool_choice_none": True,
        "enable_auto_tool_choice": False,
        "reasoning_parser": "qwen3"}, kept
    assert not unknown, unknown
    kept, unknown = flags("sglang", "--tokenizer-path x --tp 4 --page-size 1")
    assert (kept, unknown) == ({"tokenizer_path": "x"}, []), (kept, unknown)


def secrets():
    """values of other flags are never kept, whatever they are"""
    found = flags("vllm", "serve m --api-key s3cret --hf-token=s3cret "
                          "--new-flag s3cret --other=s3cret")
    assert "s3cret" not in repr(found), found
    assert found[1] == ["new-flag", "other"], found


def wrong_flags():
    """flags without a right value are refused with their name"""
    assert "--default-chat-template-kwargs is no JSON" in refused(
        "vllm", "--default-chat-template-kwargs {x")
    assert "--reasoning-parser has no value" in refused(
        "sglang", "--reasoning-parser --port 1")


def config_files():
    """flags of --config count, those of the command line before them"""
    file = at / "engine.json.yaml"
    file.write_text("reasoning-parser: other\nchat_template_content_format: "
                    "string\nexclude-tools-when-tool-choice-none: true\n")
    try:
        import yaml                         # noqa: F401
    except ImportError:
        assert "can't be read" in refused("vllm", f"--config {file}")
        return
    kept, _ = flags("vllm", f"--config {file} --reasoning-parser mine")
    assert kept["reasoning_parser"] == "mine", kept
    assert kept["exclude_tools_when_tool_choice_none"] is True, kept


def engines():
    """engines are known by their command lines"""
    for line, kind in (
            ("/usr/bin/python3 /opt/bin/vllm serve m", "vllm"),
            ("python3 -m vllm.entrypoints.openai.api_server --model m",
             "vllm"),
            ("python3 -m sglang.launch_server --model-path m", "sglang"),
            ("/usr/local/bin/trtllm-serve m", "trtllm"),
            ("python3 -m http.server", None), ("cat vllm", None)):
        assert dump.kind_of(line.split()) == kind, line


def running_engines():
    """a process that runs the model is found, with its time zone"""
    args = dump.arguments_of([str(at / "model")])
    with contextlib.suppress(dump.Refused):
        dump.find_process(args)
        raise AssertionError("an engine is found before there is one")
    script = at / "vllm"
    script.write_text("import time\ntime.sleep(600)\n")
    process = Process("engine", [
        "env", "TZ=Europe/Oslo", "HF_TOKEN=s3cret", sys.executable,
        str(script), "serve", str(at / "model"), "--cohere-format", "cmd3"],
                      at)
    try:
        # not env, which becomes the engine
        wait_until("the engine runs", lambda: any(
            str(at / "model") in words and words[0] != "env"
            for _, _, words in dump.processes(args)), WAIT_SECONDS)
        kind, words, zone = dump.find_process(args)
        assert (kind, dump.time_zone(zone)) == ("vllm", "Europe/Oslo")
        assert dump.flags(kind, words)[0] == {"cohere_format": "cmd3"}
    finally:
        process.stop()


@contextlib.contextmanager
def running(*words):
    """A process with this command line, and its pid."""
    process = Process("engine", words, at)
    try:
        wait_until("the process has its command line", lambda: Path(
            f"/proc/{process.pid()}/cmdline").read_bytes(), WAIT_SECONDS)
        yield str(process.pid())
    finally:
        process.stop()


def found(*options):
    """The engine that runs the model, or why none is found."""
    try:
        return dump.find_process(dump.arguments_of(
            [str(at / "model"), *options]))
    except dump.Refused as e:
        return str(e)


def wrapped_engines():
    """an engine whose program has another name is found by both options"""
    line = ["-c", "import time; time.sleep(600)", "--model-path",
            str(at / "model"), "--reasoning-parser", "qwen3"]
    with running(sys.executable, *line) as pid:
        assert "in its command line runs here" in found()
        assert "add --engine" in found("--pid", pid)
        kind, words, _ = found("--pid", pid, "--engine", "sglang")
        assert (kind, words[1:]) == ("sglang", line), (kind, words)
        assert dump.flags(kind, words)[0] == {"reasoning_parser": "qwen3"}
    assert f"process {pid} does not run here" in found(
        "--pid", pid, "--engine", "sglang")


def other_engines():
    """--engine does not make another engine of one that is known"""
    with running(sys.executable, "-c", "import time; time.sleep(600)",
                 "vllm serve", str(at / "model")) as pid:
        assert found("--pid", pid)[0] == "vllm"
        assert "runs vllm, and --engine says sglang" in found(
            "--pid", pid, "--engine", "sglang")


def wrong_arguments():
    """wrong arguments end with status 2, and write nothing"""
    for args in ((), ("m", "--no-process"), ("m", "--engine", "vllm"),
                 ("m", "--no-process", "--engine", "x"),
                 ("m", "--no-process", "--engine", "vllm", "--pid", "1")):
        done = subprocess.run([sys.executable, "-", *args],
                              stdin=DUMP.open("rb"), capture_output=True,
                              check=False)
        assert done.returncode == 2, (args, done)
        assert not done.stdout, done


def archives():
    """the archive begins with router.json"""
    out = io.BytesIO()
    dump.write(out, [("router.json", b"{}"), ("a/b.jinja", b"x")])
    text = out.getvalue()
    assert text.index(b"router.json") < text.index(b"a/b.jinja")


def old_transformers():
    """transformers before 4.42 prints tools as other JSON, which is said"""
    tools = {"default": "{{ messages }}", "tool_use": "{{ tools | tojson }}"}

    assert dump.old_json("4.41.2", tools).startswith("transformers 4.41.2 ")
    assert dump.old_json("4.40.0", tools).startswith("transformers 4.40.0 ")
    assert dump.old_json("4.40.0", {"default": "{{ messages }}"}) is None
    assert dump.old_json("4.42.0", tools) is None
    assert dump.old_json("5.23.0", tools) is None


def vectors():
    """the archive in t/vectors/model is whole, and of this format"""
    router = json.loads((MODEL / "router.json").read_text())
    assert router["format"] == dump.FORMAT
    assert len(router["strings"]) == dump.STRINGS
    assert len(router["conversations"]) == 20
    for name, told in router["files"].items():
        data = (MODEL / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == told["sha256"], name
        assert len(data) == told["bytes"], name


def main():
    """Runs them."""
    global at                   # pylint: disable=global-statement
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        return tap.run([kept_flags, secrets, wrong_flags, config_files,
                        engines, running_engines, wrapped_engines,
                        other_engines, wrong_arguments, archives,
                        old_transformers, vectors])


if __name__ == "__main__":
    sys.exit(main())
