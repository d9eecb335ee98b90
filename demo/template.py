"""A model's tokenizer and chat template, as engines have them: the tokenizer is
the router's own, of libkvr.so, and the template is Jinja.

The directory is one of Hugging Face, or of kv-model-dump.
"""

import ctypes
import json
import os
import threading
import time
from functools import lru_cache
from pathlib import Path

import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from bodies import BadRequest
from tokenizer import ModelError, token_of

BUILD = os.environ.get("KVR_BUILD") or Path(__file__).parents[1] / "build"
LIBRARY = f"{BUILD}/libkvr.so"
WHY_BYTES = 512                 # KVR_MODEL_WHY
ADD_SPECIAL = 1                 # KVR_ENCODER_ADD_SPECIAL
DONE, AGAIN = 0, 1              # kvr_encoder_rc_t
POINTERS = ("kvr_model_tokenizer", "kvr_encoder_new", "kvr_encoder_ids")
TEXTS = ("kvr_model_refused", "kvr_encoder_error")


def _library():
    """The library, with its functions' types."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise ModelError(f"{error}: a tokenizer needs the package "
                         "nginx-kv-router") from error
    for name in (*POINTERS, *TEXTS):
        getattr(library, name).restype = (
            ctypes.c_void_p if name in POINTERS else ctypes.c_char_p)
    return library


class Template:
    """The tokenizer and the template of one directory."""

    def __init__(self, folder, engine="vllm"):
        self._library = _library()
        self._turn = threading.Lock()
        self._encoder = ctypes.c_void_p(self._opened(folder, engine))
        self.token_of = lru_cache(maxsize=65536)(self._token_of)
        # how many tokens it puts before a text
        self.added = len(self.text_ids(""))

        config = Path(folder) / "tokenizer_config.json"
        config = json.loads(config.read_text("utf-8")) \
            if config.exists() else {}
        self._special = {
            name: value["content"] if isinstance(value, dict) else value
            for name, value in config.items()
            if name.endswith("_token") and isinstance(value, (dict, str))}
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True,
            extensions=[jinja2.ext.loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals.update(
            raise_exception=_raise, strftime_now=time.strftime)
        template = Path(folder) / "chat_template.jinja"
        if template.exists():
            template = template.read_text("utf-8")
        else:
            template = config.get("chat_template")
            if isinstance(template, list):      # several, by their names
                template = {one["name"]: one["template"]
                            for one in template}.get("default")
        self._template = environment.from_string(
            template or "{{ raise_exception('there is no chat template') }}")

    def _opened(self, folder, engine):
        """An encoder of the directory's tokenizer."""
        model, why = ctypes.c_void_p(), ctypes.create_string_buffer(WHY_BYTES)
        if self._library.kvr_model_load(
                ctypes.byref(model), os.fsencode(folder), engine.encode(),
                None, ctypes.c_size_t(0), why) != 0:
            raise ModelError(f"{folder}: {why.value.decode()}")
        tokenizer = self._library.kvr_model_tokenizer(model)
        if not tokenizer:
            raise ModelError(f"{folder}: the model is refused: "
                             + self._library.kvr_model_refused(model).decode())
        return self._library.kvr_encoder_new(ctypes.c_void_p(tokenizer), None,
                                             None)

    def text_ids(self, text, special=True):
        """The ids of a text; with those that the tokenizer adds, if
        `special`.  Threads take turns, as the encoder has one text."""
        data, count = text.encode(), ctypes.c_size_t()
        with self._turn:
            status = self._library.kvr_encoder_begin(
                self._encoder, data, ctypes.c_size_t(len(data)),
                ADD_SPECIAL if special else 0)
            while status == AGAIN:
                status = self._library.kvr_encoder_step(self._encoder,
                                                        ctypes.c_uint64(0))
            if status != DONE:
                raise BadRequest(
                    self._library.kvr_encoder_error(status).decode())
            ids = self._library.kvr_encoder_ids(self._encoder,
                                                ctypes.byref(count))
            return list((ctypes.c_uint32 * count.value).from_address(ids)) \
                if count.value else []

    def _token_of(self, word):
        """The id of a word; that of the toy tokenizer when the word is not
        one token."""
        ids = self.text_ids(word, False)
        return ids[0] if len(ids) == 1 else token_of(word)

    def chat_ids(self, messages, tools, arguments, special=False):
        """The ids of a conversation; `arguments` are the template's.  One
        that is to be continued ends where its last message does."""
        text = self._template.render(
            messages=messages, tools=tools, **{**self._special, **arguments})
        if arguments.get("continue_final_message"):
            last = messages[-1]["content"].strip()
            text = text[:text.rindex(last) + len(last)]
        return self.text_ids(text, special)


def _raise(message):
    """A template's own refusal."""
    raise BadRequest(message)


def _tojson(value, ensure_ascii=False, indent=None, separators=None,
            sort_keys=False):
    """The filter of templates, with engines' defaults."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent,
                      separators=separators, sort_keys=sort_keys)
