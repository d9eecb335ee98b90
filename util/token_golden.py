#!/usr/bin/env python3
"""Writes t/vectors/token/golden.json: texts and their token ids, by Hugging
Face's library, for tokenizers of our own: token_golden.py > FILE.

Two small tokenizers are trained on the text below: one of bytes, one of
characters with byte_fallback.  Each variant puts one component, or a few, into
one of them.  Parts of a tokenizer are kept as JSON texts, so that whoever reads
the file can put them together without a change.
"""

import json
import random
import sys
from importlib.metadata import version

from tokenizers import (Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

SEED = 7
VOCABULARY = 700
CORPUS = """\
The harbour master keeps a list of all ships that lie at the quay, of what they
carry, and of the tide with which they want to leave. When a storm comes, the
small boats are moved behind the long wall, where the water is calm. It's 12
o'clock; they'll leave at 13:45, won't they? I'M HERE. We've 1,234.56 reasons.
Grüße aus Århus, où l'été s'achève; ¿qué pasó? Съешь же ещё этих булок. 今天天气很好，
我们去公园散步。日本語のテスト、カタカナとひらがな。한국어 띄어쓰기. שלום עולם. नमस्ते दुनिया. ภาษาไทย
def f(self, *args: int, **kw) -> None:\n    return [i ** 2 for i in range(10)]\n
{"type": "function", "parameters": {"city": {"type": "string", "n": [1, 2]}}}
https://example.com:8080/a/b.html?x=1&y=%20z#frag   aaaa bbbb    ab ab abab
"""
SPECIAL = ["<|begin|>", "<|end|>", "<|im_start|>", "<|im_end|>"]
TEXTS = [
    "", " ", "  ", "a", " a", "a ", "\n", "\n\n\n", " \n \n x", "\t\tx", "\0",
    "a\0b", "Hello, world!", "It's 12 o'clock; THEY'LL leave. I'm, he'd.",
    "it'ſ K k Å 'S 'ſ", "1 12 123 1234567 3.14 1,234 ½ Ⅷ १२३ ²³ ①",
    "camelCaseHTTPServer2Go __init__ snake_case", "...!!! --- *** ((())) ;;",
    "x;\n}\n\n});\r\n/**\n */\n", "a\r\nb\rc\n\r", "e\u0301 a\u0308o\u0308 é",
    "\u0301 \u0301\u0323 q\u0307\u0323 q\u0323\u0307 \u1e0b\u0323",
    "\u1112\u1161\u11ab\u1100\u1173\u11af 각 가\u11a8 \uac01\u11a8",
    "ﬁ ﷺ ｆｕｌｌ ㎒ ¨ ﬅ", "İstanbul ıssız ΣΑΣ ǅ ẞ", "\u0958 \u0915\u093c \u2126",
    "a" + "\u0301\u0323\u0308" * 40, "今天天气，很好。《论语》", "日本語 カタカナ ひらがな",
    "中、文。々〇ー・", "한국어 띄어쓰기", "שָׁלוֹם", "नमस्ते क्ष", "ภาษาไทย น้ำ", "Съешь ещё",
    "😀👍🏽👩‍💻🇩🇪❤️☺︎1️⃣", "\u200d\u200b\ufeff\u2028\u2029\u3000\xa0x",
    "a\u180eb \u180e", "\u1c89\u1c8ab \ua7cbx \U00010d50\U00010d70",
    "x\U00010d40\U00010d41 \U00011bf0", "中\U00031350文\U0002ebf0字 \U0001fa75",
    "\u0897a \u0cf3", "\ue000\U0010ffff\ufffe", "▁a▁▁b Ġ Ċ <0x0A>",
    "<|im_start|>user\nHi there!<|im_end|>\n<|im_start|>assistant\n",
    "a  <|im_end|>  b", "<|im_end|><|im_end|>", "<|im_end <|im_end|",
    "x<|begin|>y<|end|>", "hello HELLO thello hellos the end the ends",
    " the  end\n", "ab abc abcd xab", "A1 a1", "aaaa" * 30, "ab" * 60,
    " " * 100 + "x", "=" * 80, "7" * 50, "the quay, of what they carry" * 20,
]

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
         "use_regex": False}
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
HAN = (r"[\p{Han}]+|[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
       r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+|\p{N}{1,3}|[^\s\p{L}\p{N}]+"
       r"|\s+")
BEHAVIOURS = ("Isolated", "Removed", "Contiguous", "MergedWithPrevious",
              "MergedWithNext")


def of_bytes():
    """The tokenizer of bytes."""
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator([CORPUS], trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    bpe.post_processor = processors.TemplateProcessing(
        single=f"{SPECIAL[0]} $A {SPECIAL[1]}",
        special_tokens=[(SPECIAL[0], 0), (SPECIAL[1], 1)])
    return json.loads(bpe.to_str())


def of_characters():
    """The tokenizer of characters, as SentencePiece's are converted."""
    bpe = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True,
                               fuse_unk=True))
    bpe.normalizer = normalizers.Sequence([
        normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    bpe.train_from_iterator([CORPUS], trainers.BpeTrainer(
        vocab_size=VOCABULARY + 256, show_progress=False, special_tokens=[
            "<unk>", *SPECIAL, *(f"<0x{i:02X}>" for i in range(256))]))
    made = json.loads(bpe.to_str())
    made["added_tokens"] = made["added_tokens"][:1 + len(SPECIAL)]
    return made


def sequence(*parts):
    """Pre-tokenizers, one behind the other."""
    return {"type": "Sequence", "pretokenizers": list(parts)}


def split(pattern, behaviour, invert=False, kind="Regex"):
    """A Split."""
    return {"type": "Split", "pattern": {kind: pattern},
            "behavior": behaviour, "invert": invert}


def flagged(made, **flags):
    """Its added tokens, with other flags."""
    return {"added_tokens": [{**token, **flags}
                             for token in made["added_tokens"]]}


def mixed(made):
    """Added tokens with mixtures of flags, and words among them."""
    tokens = [{**token, "lstrip": bool(i & 1), "rstrip": bool(i & 2),
               "normalized": bool(i & 1), "special": not i & 1}
              for i, token in enumerate(made["added_tokens"])]
    known = made["model"]["vocab"]
    number = max(*known.values(), *(token["id"] for token in tokens))
    for i, word in enumerate(("hello", "the end", "é", "abc", "A1", "ΣΑΣ")):
        if word not in known:
            number += 1
        tokens.append({
            "id": known.get(word, number), "content": word,
            "single_word": bool(i & 1), "lstrip": bool(i & 2),
            "rstrip": i % 3 == 1, "normalized": i % 3 == 0, "special": False})
    return {"added_tokens": tokens}


def variants(by_bytes, by_characters):
    """(name, base, what is put into it)."""
    yield "bytes", "bytes", {}
    yield "characters", "characters", {}
    for behaviour in BEHAVIOURS:
        for invert in (False, True):
            yield (f"split {behaviour} {invert}", "bytes", {
                "pre_tokenizer": sequence(split(
                    r"\p{N}|[aeiou]|\s", behaviour, invert), BYTES)})
            yield (f"split at a text {behaviour} {invert}", "bytes", {
                "pre_tokenizer": sequence(split(
                    " ", behaviour, invert, "String"), BYTES)})
    for single in (False, True):
        yield f"digits {single}", "bytes", {"pre_tokenizer": sequence(
            {"type": "Digits", "individual_digits": single},
            {**BYTES, "use_regex": True})}
    for name, pattern in (("cased", CASED), ("han", HAN)):
        yield name, "bytes", {"pre_tokenizer": sequence(
            split(pattern, "Isolated"), BYTES)}
    yield "a chain", "bytes", {"pre_tokenizer": sequence(
        split(r"\p{L}+", "MergedWithNext"), split(r"\d", "MergedWithPrevious"),
        split("[一-龥ࠀ-一가-퟿]+", "Isolated"), BYTES)}
    yield "blanks in front", "bytes", {"pre_tokenizer": {
        **BYTES, "add_prefix_space": True, "use_regex": True}}
    yield "blanks in front, split before", "bytes", {
        "pre_tokenizer": sequence(split(r"\s+", "Isolated"),
                                  {**BYTES, "add_prefix_space": True})}
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase"):
        yield form, "bytes", {"normalizer": {"type": form}}
    yield "normalizers", "bytes", {"normalizer": {
        "type": "Sequence", "normalizers": [
            {"type": "NFD"}, {"type": "Lowercase"}, {"type": "NFC"},
            {"type": "Strip", "strip_left": True, "strip_right": True}]}}
    yield "strip left", "bytes", {"normalizer": {
        "type": "Strip", "strip_left": True, "strip_right": False}}
    yield "replace a pattern", "bytes", {"normalizer": {
        "type": "Replace", "pattern": {"Regex": r"\s{2,}|[0-9]"},
        "content": "#"}}
    yield "replace a text, prepend", "bytes", {"normalizer": {
        "type": "Sequence", "normalizers": [
            {"type": "Replace", "pattern": {"String": "ab"},
             "content": "x y"}, {"type": "Prepend", "prepend": "__"}]}}
    for scheme in ("always", "first", "never"):
        for apart in (False, True):
            yield f"metaspace {scheme} {apart}", "characters", {
                "normalizer": None, "pre_tokenizer": {
                    "type": "Metaspace", "replacement": "▁",
                    "prepend_scheme": scheme, "split": apart}}
    for flag in ("lstrip", "rstrip", "single_word", "normalized"):
        yield flag, "bytes", flagged(by_bytes, **{flag: True})
        yield (f"{flag}, characters", "characters",
               flagged(by_characters, **{flag: True}))
    yield "mixed flags", "bytes", mixed(by_bytes)
    yield "mixed flags, NFKC and lower case", "bytes", {
        **mixed(by_bytes), "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFKC"}, {"type": "Lowercase"}]}}
    yield "ignore merges", "bytes", {"model": {
        **by_bytes["model"], "ignore_merges": True}}
    yield "merges as texts", "bytes", {"model": {
        **by_bytes["model"], "merges": [
            " ".join(pair) for pair in by_bytes["model"]["merges"]]}}
    for fuse in (False, True):
        yield f"unknown, fused {fuse}", "characters", {"model": {
            **by_characters["model"], "byte_fallback": False,
            "fuse_unk": fuse}}
    yield "unknown vanishes", "characters", {"model": {
        **by_characters["model"], "byte_fallback": False, "unk_token": None}}


def texts():
    """The texts: those above, and some that are drawn."""
    lot = random.Random(SEED)
    bits = [bit for text in TEXTS for bit in (text[:9], text[-7:]) if bit]
    return TEXTS + ["".join(lot.choices(bits, k=lot.randrange(2, 9)))
                    for _ in range(60)]


def main():
    """Writes the file."""
    bases = {"bytes": of_bytes(), "characters": of_characters()}
    said = texts()
    found = []
    for name, base, parts in variants(*bases.values()):
        theirs = Tokenizer.from_str(json.dumps({**bases[base], **parts}))
        found.append({
            "name": name, "base": base,
            "parts": {part: json.dumps(value)
                      for part, value in parts.items() if part != "model"},
            "ids": [theirs.encode(text, add_special_tokens=bool(i & 1)).ids
                    for i, text in enumerate(said)]})
        if "model" in parts:
            # the vocabulary is the base's: only what differs is kept
            model = bases[base]["model"]
            found[-1]["model"] = {
                key: json.dumps(value) for key, value
                in parts["model"].items() if value != model[key]}
    json.dump({
        "library": f"tokenizers {version('tokenizers')}",
        "bases": {name: {part: json.dumps(value)
                         for part, value in made.items() if part != "model"}
                  for name, made in bases.items()},
        "models": {name: {part: json.dumps(value)
                          for part, value in made["model"].items()}
                   for name, made in bases.items()},
        "texts": said, "variants": found}, sys.stdout, ensure_ascii=True,
        separators=(",", ":"))


if __name__ == "__main__":
    main()
