#!/usr/bin/python3
"""Makes the tokenizer and the chat template of the golden requests, and a
model that engines can be started with: golden_model.py FILES FOLDER.  FILES
is t/vectors/golden/model.

Both are of our own.  The tokenizer is byte-level BPE, trained on the text
below; completions of text begin with its BOS, as the template does.  The
template shows every field that an engine can give it, so that ids tell whether
a field has got there.

Runs in an engine's environment, which has `tokenizers`, `torch` and
`transformers`.
"""

import json
import shutil
import sys
from pathlib import Path

import models as tiny
import torch
from tokenizers import (Regex, Tokenizer, decoders, models, pre_tokenizers,
                        processors, trainers)
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 512
SPECIAL = ["<|begin|>", "<|end|>", "<|im_start|>", "<|im_end|>"]
# words, digits one by one, what is neither, and blanks
PIECES = (r" ?[A-Za-z]+|[0-9]| ?[^ \t\r\nA-Za-z0-9]+|[ \t\r\n]+")
CORPUS = """\
The harbour master keeps a list of all ships that lie at the quay, of what
they carry, and of the tide with which they want to leave. When a storm comes
the small boats are moved behind the long wall, where the water is calm.
Every morning the list is read aloud. Who wants to know which ship has salt,
wool or timber asks at the window of the office, and gets an answer in a few
words: its name, its place, the time at which it leaves.
The weather is told by a tool with the name of a city; the tool answers with
a temperature and a wind. You are a helpful assistant. Answer briefly. Think
before you answer. The user asks, the assistant answers, the tool is called.
{"type": "function", "function": {"name": "weather", "description": "tells",
"parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
system user assistant tool developer document effort high low thinking
"""

TEMPLATE = """\
{{- bos_token }}
{%- if tools %}
{{- '<|im_start|>tools\\n' }}
{%- for tool in tools %}{{- tool | tojson + '\\n' }}{% endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- if documents %}
{{- '<|im_start|>documents\\n' }}
{%- for document in documents %}{{- document | tojson + '\\n' }}{% endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- if reasoning_effort %}
{{- '<|im_start|>effort ' + reasoning_effort + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role }}
{%- if message.name %}{{- ' ' + message.name }}{% endif %}
{%- if message.tool_call_id %}{{- ' of ' + message.tool_call_id }}{% endif %}
{{- '\\n' }}
{%- if message.reasoning_content %}
{{- 'thinking: ' + message.reasoning_content + '\\n' }}
{%- elif message.reasoning %}
{{- 'thinking: ' + message.reasoning + '\\n' }}
{%- endif %}
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}
{{- '\\ncall ' + call.function.name + ' ' + call.function.arguments | tojson }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and not enable_thinking %}
{{- 'thinking: no\\n' }}
{%- endif %}
{%- endif %}
"""


def tokenizer():
    """The tokenizer."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PIECES), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator([CORPUS], trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False))
    bpe.post_processor = processors.TemplateProcessing(
        single=f"{SPECIAL[0]} $A", pair=f"{SPECIAL[0]} $A $B",
        special_tokens=[(SPECIAL[0], 0)])
    return bpe


def write(folder):
    """The files that are in the repository."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer().save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[0], "eos_token": SPECIAL[1],
        "pad_token": SPECIAL[1], "model_max_length": tiny.CONTEXT}) + "\n")
    (folder / "chat_template.jinja").write_text(TEMPLATE)


def main(files, folder):
    """Writes the files, and the model: these, a configuration, random
    weights, adapters."""
    write(Path(files))
    folder = Path(folder)
    shutil.copytree(files, folder, dirs_exist_ok=True)
    torch.manual_seed(1)
    LlamaForCausalLM(LlamaConfig(**tiny.SHARED | tiny.CONFIGS["llama"] | {
        "vocab_size": VOCABULARY, "eos_token_id": 1,
        "pad_token_id": 1})).save_pretrained(folder)
    for name in tiny.ADAPTERS:
        tiny.adapter(folder / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
