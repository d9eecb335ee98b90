#!/usr/bin/python3
"""Makes models that are tiny, and of our own: models.py FOLDER MODEL...

A model is a folder with a configuration, a tokenizer that is trained on this
repository's documentation, and a chat template.  Weights are not there:
engines are started with random ones.  An engine's prefix cache does not depend
on the weights.  Adapters have weights in files, as engines read these in any
case.

Runs in an engine's environment, which has `tokenizers` and `safetensors`.
"""

import json
import struct
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = 2048
CONTEXT = 8192
HIDDEN = 128
HEAD = 64
SPECIAL = ["<|end|>", "<|im_start|>", "<|im_end|>"]
ADAPTERS = ("sql", "chat")
ADAPTER_RANK = 8

TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}
{{- messages[0].content + '\\n' }}
{%- endif %}
{{- 'These functions can be called:\\n' }}
{%- for tool in tools %}{{- tool | tojson + '\\n' }}{% endfor %}
{{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if not (loop.first and message.role == 'system') %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{- '\\n' + call.function.name + ' ' + call.function.arguments | tojson }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and not enable_thinking %}
{{- '(without thinking)\\n' }}
{%- endif %}
{%- endif %}
"""

SHARED = {
    "vocab_size": VOCABULARY, "hidden_size": HIDDEN,
    "intermediate_size": 2 * HIDDEN, "head_dim": HEAD,
    "num_attention_heads": 2, "num_key_value_heads": 1,
    "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-6,
    "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0,
    "torch_dtype": "float32", "tie_word_embeddings": True}

CONFIGS = {
    "llama": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "num_hidden_layers": 2, "hidden_act": "silu", "rope_theta": 10000.0},

    # what drafts tokens for it: a layer, and what vLLM puts around it
    "llama-eagle": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "num_hidden_layers": 1, "hidden_act": "silu", "rope_theta": 10000.0},

    # five layers of sliding windows, one of full attention
    "gemma3": {
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
        "num_hidden_layers": 6, "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": HEAD, "sliding_window": 128,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        "rope_theta": 10000.0, "rope_local_base_freq": 10000.0},

    # three layers of mamba's kind, one of full attention
    "qwen3-next": {
        "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next",
        "num_hidden_layers": 4, "hidden_act": "silu", "rope_theta": 10000.0,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": HEAD, "linear_value_head_dim": HEAD,
        "linear_num_key_heads": 1, "linear_num_value_heads": 1,
        "decoder_sparse_step": 1, "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64, "num_experts": 4,
        "num_experts_per_tok": 2, "norm_topk_prob": True,
        "mlp_only_layers": []}}


def tokenizer(special=SPECIAL):
    """Pairs of bytes, trained on what this repository says of itself."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    pages = [ROOT / "README.md", ROOT / "relay" / "README.md",
             *sorted((ROOT / "docs").glob("*.md"))]
    bpe.train([str(page) for page in pages],
              trainers.BpeTrainer(
                  vocab_size=VOCABULARY, special_tokens=list(special),
                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                  show_progress=False))
    return bpe


def adapter(folder):
    """A LoRA of the projections of queries and values, its weights 0."""
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": ADAPTER_RANK,
        "lora_alpha": ADAPTER_RANK, "lora_dropout": 0.0, "bias": "none",
        "base_model_name_or_path": "tiny",
        "target_modules": ["q_proj", "v_proj"]}))
    shapes = {
        f"base_model.model.model.layers.{layer}.self_attn.{name}.{half}"
        ".weight":
        [ADAPTER_RANK, HIDDEN] if half == "lora_A" else [out, ADAPTER_RANK]
        for layer in range(CONFIGS["llama"]["num_hidden_layers"])
        for name, out in (("q_proj", 2 * HEAD), ("v_proj", HEAD))
        for half in ("lora_A", "lora_B")}
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 4 * shape[0] * shape[1]
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + bytes(at))


def make(folder, name):
    """One model, with adapters where it is the one that serves them."""
    folder = Path(folder) / name
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[0], "eos_token": SPECIAL[2],
        "pad_token": SPECIAL[0], "model_max_length": CONTEXT,
        "chat_template": TEMPLATE}))
    (folder / "config.json").write_text(json.dumps(
        SHARED | CONFIGS[name]))
    if name == "llama":
        for name_ in ADAPTERS:
            adapter(folder / name_)


if __name__ == "__main__":
    for model in sys.argv[2:]:
        make(sys.argv[1], model)
