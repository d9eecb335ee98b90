"""What vLLM's events say of images: chats with images go to an engine, and
what it publishes of them is held beside what it renders of the same chats.
docs/events.md, "Images", has what was found.
"""

import json
import subprocess
import tempfile

import golden
import golden_serve
from fleet import MODELS
from golden_cases import ADAPTERS
from images_watch import (BLOCK, GEMMA, NAME, PLACEHOLDER, QWEN, UUID,
                          Listener, Vllm, Watch, learned)
from pictures import chat, part, picture

FEWER = {"max_pixels": 30 * 28 * 28}
ASK = "Which of the ships are on the list, and when do they leave? " * 3


def an_image(watch):
    """The first image's name, and how many tokens it has."""
    ((name, _, length),) = watch.see(
        "an image", ASK, picture(280, 280, 1), ASK).ranges
    return name, length


def qwen(watch):
    """All tokens of an image are the same."""
    one, two, wide, big = (picture(*it) for it in (
        (280, 280, 1), (280, 280, 2), (560, 140, 3), (420, 420, 4)))
    see, check = watch.see, watch.check
    see("no image", ASK)
    name, _ = found = an_image(watch)
    check("what is cached is not told again",
          not see("the same again", ASK, one, ASK).events)
    four = see("four images", ASK, one, "and", two, wide, big, ASK)
    check("a size has its tokens",
          [it[2] for it in four.ranges] == [100, 100, 100, 225])
    check("a name is of an image, wherever it is", see(
        "another order, one twice", ASK, two, one, one, ASK).names
        == [four.names[1], name, name])
    check("a name is of bytes, not of pixels", see(
        "other bytes of the same pixels", picture(280, 280, 1, 0), ASK
        ).names != [name])
    check("an end that is in no whole block is not told",
          see("an image at the end", one).learned == [{}])
    other = see("mm_processor_kwargs", ASK, one, ASK,
                mm_processor_kwargs=FEWER).ranges[0]
    check("mm_processor_kwargs: another name, other tokens",
          other[0] != name and other[2] == 25)
    check("a uuid is the name", see(
        "uuid", ASK, part(one, uuid=UUID), ASK).names == [UUID])
    check("a uuid stands for the bytes that it came with first", see(
        "uuid, larger image", ASK, part(big, uuid=UUID), ASK
        ).ranges[0][2] == 100)
    see("uuid alone", ASK, part(None, uuid=UUID), ASK)
    check("with mm_processor_kwargs a uuid is not the name", see(
        "uuid, mm_processor_kwargs", part(one, uuid=UUID),
        mm_processor_kwargs=FEWER).names not in ([UUID], [other[0]]))
    check("an adapter has no names of its own", see(
        "adapter", ASK, one, ASK, model=ADAPTERS[0]).names == [name])
    see("salt", one, ASK, cache_salt="pepper")
    talk = []
    for turn in range(1, 6):
        talk += chat(f"Screen {turn}", picture(280, 280, 10 + turn))[turn > 1:]
        see(f"session, turn {turn}", messages=talk)
        talk.append({"role": "assistant", "content": "I see ships. " * turn})
    late = Listener(watch.engine.directory)
    see("another question", ASK, one, "and", two, "And how large? " * 9)
    check("a listener that came late learns of new blocks alone",
          [learned(it) for it in late.told()] == [{four.names[1]: 100}])
    return found


def gemma(watch):
    """Other tokens are around placeholders, and among them."""
    one, two, wide = (picture(*it) for it in (
        (280, 280, 1), (280, 280, 2), (800, 280, 3)))
    see, check = watch.see, watch.check
    plain, beside, crops = (
        seen.ids[seen.ranges[0][1]:][:seen.ranges[0][2]] for seen in (
            see("an image", ASK, one, ASK),
            see("newlines beside it", ASK + "\n", one, "\n\n" + ASK),
            see("pan and scan", ASK, wide, ASK, mm_processor_kwargs={
                "do_pan_and_scan": True, "pan_and_scan_min_crop_size": 128})))
    check("tokens around placeholders are the image's",
          (len(plain), plain.count(PLACEHOLDER)) == (68, 64))
    check("the text beside an image changes the image's tokens",
          beside[1:-1] == plain[1:-1] and beside != plain)
    check("pan and scan: words are the image's", len(set(crops)) > 10)
    pair = see("two images side by side", ASK, one, two, ASK)
    begins = {name: BLOCK * i + offset for it in pair.events
              for i, keys in enumerate(it["extra_keys"])
              for name, offset in keys or ()}
    check("side by side they share a token, and /render fails",
          not pair.rendered and max(begins.values()) - min(begins.values())
          == len(plain) - 1)


def run(runner):
    """An engine, and the same again; with another option; with its model in
    another folder; and another model."""
    kinds = ((QWEN, qwen), (QWEN, an_image),
             (QWEN, an_image, "--mm-processor-kwargs", json.dumps(FEWER)),
             (f"{QWEN}-copy", an_image), (GEMMA, gemma))
    rows, found = [], []
    for name, cases, *options in kinds:
        subprocess.run([golden_serve.PYTHON, "-B",
                        golden_serve.HERE / "images_model.py",
                        name.removesuffix("-copy"),
                        MODELS / f"{NAME}-{name}"], check=True)
        with tempfile.TemporaryDirectory(prefix="kv-router-images-") as \
                folder, golden.Engine(Vllm(name, options), folder) as engine:
            watch = Watch(runner, engine, rows)
            found.append(cases(watch))
    (name, length), *others, (copied, _) = found[:4]
    runner.check(NAME, "a name outlives a restart; an option of the engine "
                 "changes how many tokens it has, and not the name", None
                 if others == [(name, length), (name, 25)] else str(others))
    runner.check(NAME, "a name is of the model's path",
                 None if copied != name else copied)
    runner.tables.append("\n".join((
        "| model | case | tokens | cached | blocks told | tokens of images "
        "| learned from events |", "|---|---|---|---|---|---|---|", *rows)))
