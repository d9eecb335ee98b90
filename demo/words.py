"""The demo's model: a folder as Hugging Face has them, made anew each time.

Its tokenizer is a byte-level BPE in which each word that replay.py sends, and
each word that engines answer, is one token: prompts in words have as many
tokens as the recorded ones.  Engines (engine.py --tokenizer) and nginx
(kv_router_model) read the same folder.
"""

import itertools
import json
from string import ascii_lowercase

from tokenizer import WORDS

SPECIAL = ("<|begin|>", "<|end|>", "<|im_start|>", "<|im_end|>")
PIECES = r" ?[A-Za-z]+|[0-9]| ?[^ \t\r\nA-Za-z0-9]+|\r?\n|[ \t]+"

TEMPLATE = """\
{{- bos_token }}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

# Another file, which a template's own folder may have: a router reads none.
UNKNOWN = "{% include 'greeting.jinja' %}\n" + TEMPLATE


def byte_names():
    """The character that stands for each byte, as in GPT-2's vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return ({byte: chr(byte) for byte in plain}
            | {byte: chr(256 + i) for i, byte in enumerate(others)})


def _words():
    """The words, and the beginnings of them, the shorter ones first."""
    space = byte_names()[ord(" ")]
    words = {space + "".join(letters)
             for length in (1, 2, 3)
             for letters in itertools.product(ascii_lowercase, repeat=length)}
    for word in WORDS:
        letters = word.strip()
        words |= {space + letters[:end]
                  for end in range(1, len(letters) + 1)}
    return sorted(words, key=lambda word: (len(word), word))


def write(folder, template=TEMPLATE):
    """Writes the model into a folder that is not there yet."""
    words = _words()
    tokens = [*SPECIAL, *byte_names().values(), *words]
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [
            {"id": number, "content": text, "single_word": False,
             "lstrip": False, "rstrip": False, "normalized": False,
             "special": True} for number, text in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PIECES},
             "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False,
             "trim_offsets": True, "use_regex": False}]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True,
                    "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None,
            "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [[word[:-1], word[-1]] for word in words]},
    }), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[0], "eos_token": SPECIAL[1]}))
    # a router reads none of this, Dynamo's frontend does
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "vocab_size": len(tokens), "max_position_embeddings": 1 << 20,
        "bos_token_id": 0, "eos_token_id": 1}))
    (folder / "chat_template.jinja").write_text(template)
