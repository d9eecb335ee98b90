#!/usr/bin/python3
"""Makes models that read images: images_model.py KIND FOLDER.

They are like those of models.py, with a tower for images.  `qwen2-vl` has as
many placeholders as an image has parts of 28 by 28 pixels, all of them the
same token.  `gemma3-vl` has 64 for each image, and other tokens around them.

Runs in an engine's environment, which has `tokenizers`.
"""

import json
import sys
from pathlib import Path

import models
from models import CONFIGS, HIDDEN, SHARED, SPECIAL

# after those of models.py, in the order of their ids
QWEN = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
        "<|video_pad|>"]
GEMMA = ["<start_of_image>", "<end_of_image>", "<image_soft_token>",
         "\n", "\n\n", "\n\n\n", "\n\n\n\n"]
FIRST = len(SPECIAL)

TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.content is string %}
{{- message.content }}
{%- else %}
{%- for part in message.content %}
{{- part.text if part.type == 'text' else 'IMAGE' }}
{%- endfor %}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

TEXT = {name: SHARED[name] for name in SHARED
        if name not in ("torch_dtype", "tie_word_embeddings")}
NORMAL = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3,
          "rescale_factor": 1 / 255, "do_resize": True, "do_rescale": True,
          "do_normalize": True, "resample": 3, "do_convert_rgb": True}

QWEN2_VL = {
    "config.json": {
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "model_type": "qwen2_vl", "torch_dtype": "float32",
        "tie_word_embeddings": True,
        **{name: SHARED[name] for name in (
            "bos_token_id", "eos_token_id", "pad_token_id")},
        **{f"{name}_token_id": FIRST + i for i, name in enumerate((
            "vision_start", "vision_end", "image", "video"))},
        "text_config": TEXT | {
            "model_type": "qwen2_vl_text", "num_hidden_layers": 2,
            "hidden_act": "silu", "use_sliding_window": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4,
                                "mrope_section": [8, 12, 12]}},
        "vision_config": {
            "model_type": "qwen2_vl", "depth": 1, "embed_dim": 64,
            "hidden_size": HIDDEN, "num_heads": 2, "mlp_ratio": 2,
            "in_channels": 3, "patch_size": 14, "spatial_merge_size": 2,
            "temporal_patch_size": 2}},
    "preprocessor_config.json": NORMAL | {
        "processor_class": "Qwen2VLProcessor",
        "image_processor_type": "Qwen2VLImageProcessor",
        "size": {"shortest_edge": 56 * 56, "longest_edge": 1 << 20},
        "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2}}

GEMMA3_VL = {
    "config.json": {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3", "torch_dtype": "float32",
        "tie_word_embeddings": True, "mm_tokens_per_image": 64,
        **{f"{name}_token_index": FIRST + i for i, name in enumerate((
            "boi", "eoi", "image"))},
        **{name: SHARED[name] for name in (
            "bos_token_id", "eos_token_id", "pad_token_id")},
        "text_config": TEXT | CONFIGS["gemma3"],
        "vision_config": {
            "model_type": "siglip_vision_model", "hidden_size": 64,
            "intermediate_size": 128, "num_hidden_layers": 1,
            "num_attention_heads": 2, "image_size": 224, "patch_size": 14,
            "vision_use_head": False}},
    "preprocessor_config.json": NORMAL | {
        "processor_class": "Gemma3Processor", "image_seq_length": 64,
        "image_processor_type": "Gemma3ImageProcessor",
        "size": {"height": 224, "width": 224}},
    "processor_config.json": {
        "processor_class": "Gemma3Processor", "image_seq_length": 64}}

KINDS = {
    "qwen2-vl": (QWEN2_VL, QWEN, "".join(QWEN[i] for i in (0, 2, 1)), {}),
    "gemma3-vl": (GEMMA3_VL, GEMMA, GEMMA[0], {
        "extra_special_tokens": {"boi_token": GEMMA[0], "eoi_token": GEMMA[1],
                                 "image_token": GEMMA[2]}})}


def main(kind, folder):
    """One model, with adapters."""
    files, special, image, more = KINDS[kind]
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    models.tokenizer(SPECIAL + special).save(str(folder / "tokenizer.json"))
    files = files | {"tokenizer_config.json": {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[0], "eos_token": SPECIAL[2],
        "pad_token": SPECIAL[0], "model_max_length": models.CONTEXT,
        "chat_template": TEMPLATE.replace("IMAGE", image), **more}}
    for file, content in files.items():
        (folder / file).write_text(json.dumps(content))
    for name in models.ADAPTERS:
        models.adapter(folder / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
