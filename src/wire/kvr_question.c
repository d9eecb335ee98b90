/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_question.h"


/* The question as it is written. */

typedef struct {
    const kvr_tape_t  *tape;
    char              *out;
    size_t             cap;
    size_t             len;     /* of all that was to be written */
    bool               first;   /* no member was written to the object yet */
} kvr_writer_t;


/* Fields that vLLM's /tokenize has for a chat, too, in the same sense. */

static const char *const  kvr_question_chat[] = {
    "model", "messages", "add_generation_prompt", "continue_final_message",
    "add_special_tokens", "tools", "chat_template", "media_io_kwargs",
    "mm_processor_kwargs"
};


/* Fields of a chat for SGLang's /tokenize, which it must not be given: other
 * tokens come of the first ones, and it refuses a stream. */

static const char *const  kvr_question_not_sglang[] = {
    "add_generation_prompt", "add_special_tokens", "prompt", "stream",
    "stream_options"
};


const char *
kvr_question_path(kvr_ask_t ask, kvr_form_t form)
{
    if (ask == KVR_ASK_REMOTE) {
        return kvr_form_rows[form].remote ? "/tokenize" : NULL;
    }

    return *kvr_form_rows[form].render ? kvr_form_rows[form].render : NULL;
}


/* ---- writing ------------------------------------------------------------ */

static void
kvr_write(kvr_writer_t *w, const char *data, size_t len)
{
    if (w->len + len <= w->cap) {
        memcpy(w->out + w->len, data, len);
    }

    w->len += len;
}


static void
kvr_write_text(kvr_writer_t *w, const char *text)
{
    kvr_write(w, text, strlen(text));
}


/* Begins a member of an object. */

static void
kvr_write_name(kvr_writer_t *w, const char *name)
{
    if (!w->first) {
        kvr_write_text(w, ",");
    }

    w->first = false;

    kvr_write_text(w, "\"");
    kvr_write_text(w, name);
    kvr_write_text(w, "\":");
}


/* Writes a value as it stands in the body. */

static void
kvr_write_raw(kvr_writer_t *w, uint32_t i)
{
    kvr_json_text_t  raw;

    raw = kvr_tape_raw(w->tape, i);
    kvr_write(w, raw.data, raw.len);
}


/* Writes a field of the body, if the body has the field. */

static void
kvr_write_field(kvr_writer_t *w, const char *name)
{
    uint32_t  i;

    i = kvr_tape_get(w->tape, KVR_TAPE_ROOT, name);

    if (i) {
        kvr_write_name(w, name);
        kvr_write_raw(w, i);
    }
}


/*
 * Writes the members of an object except those with one of the n names.  NULL
 * among the names stands for no name.
 */

static void
kvr_write_members(kvr_writer_t *w, uint32_t object, const char *const *names,
    size_t n)
{
    size_t           k;
    uint32_t         i;
    kvr_json_text_t  key;

    for (i = kvr_tape_first(w->tape, object);
         i;
         i = kvr_tape_next(w->tape, object, i))
    {
        key = kvr_tape_text(w->tape, i);

        for (k = 0; k < n; k++) {
            if (names[k] != NULL && kvr_json_is(&key, names[k])) {
                break;
            }
        }

        if (k < n) {
            continue;
        }

        if (!w->first) {
            kvr_write_text(w, ",");
        }

        w->first = false;

        kvr_write_raw(w, i);
        kvr_write_text(w, ":");
        kvr_write_raw(w, i + 1);
    }
}


/* ---- the dialects ------------------------------------------------------- */

/* Writes the text, or the first one of several texts. */

static kvr_rc_t
kvr_question_text(kvr_writer_t *w, kvr_form_t form, kvr_tokenize_t asked,
    const char **field)
{
    uint32_t           i;
    const kvr_tape_t  *t;

    t = w->tape;

    /*
     * where vLLM's tokenizer cuts a text, it keeps the special tokens before
     * the text; an explicit side cuts them off
     */

    if (asked == KVR_TOKENIZE_VLLM
        && kvr_tape_given(t, kvr_tape_get(t, KVR_TAPE_ROOT,
                                          "truncate_prompt_tokens"))
        && !kvr_tape_given(t, kvr_tape_get(t, KVR_TAPE_ROOT,
                                           "truncation_side"))
        && kvr_tape_kind(t, kvr_tape_get(t, KVR_TAPE_ROOT,
                                         "add_special_tokens"))
           != KVR_TAPE_FALSE)
    {
        *field = "truncate_prompt_tokens";
        return KVR_DECLINED;
    }

    i = kvr_tape_get(w->tape, KVR_TAPE_ROOT, kvr_form_rows[form].text);

    if (kvr_tape_kind(w->tape, i) == KVR_TAPE_ARRAY) {
        i = kvr_tape_first(w->tape, i);
    }

    if (kvr_tape_kind(w->tape, i) != KVR_TAPE_STRING) {
        return KVR_DECLINED;
    }

    kvr_write_field(w, "model");
    kvr_write_name(w, "prompt");
    kvr_write_raw(w, i);

    /* SGLang's completions ignore the field, and its /tokenize does not */

    if (asked == KVR_TOKENIZE_VLLM) {
        kvr_write_field(w, "add_special_tokens");
    }

    return KVR_OK;
}


/*
 * vLLM puts some fields of a chat among the client's chat_template_kwargs and
 * over them.  "enable_thinking" is the client's, if it is there, or follows
 * from the effort.
 */

static void
kvr_question_kwargs(kvr_writer_t *w)
{
    uint32_t           kwargs, documents, effort;
    const char        *over[2];
    const kvr_tape_t  *t;

    t = w->tape;

    kwargs = kvr_tape_get(t, KVR_TAPE_ROOT, "chat_template_kwargs");
    documents = kvr_tape_get(t, KVR_TAPE_ROOT, "documents");
    effort = kvr_tape_get(t, KVR_TAPE_ROOT, "reasoning_effort");

    if ((!kvr_tape_given(t, documents) && !kvr_tape_given(t, effort))
        || (kvr_tape_given(t, kwargs)
            && kvr_tape_kind(t, kwargs) != KVR_TAPE_OBJECT))
    {
        /* no object: for the engine to refuse */
        kvr_write_field(w, "chat_template_kwargs");
        return;
    }

    over[0] = kvr_tape_given(t, documents) ? "documents" : NULL;
    over[1] = kvr_tape_given(t, effort) ? "reasoning_effort" : NULL;

    kvr_write_name(w, "chat_template_kwargs");
    kvr_write_text(w, "{");
    w->first = true;

    if (kvr_tape_given(t, kwargs)) {
        kvr_write_members(w, kwargs, over, kvr_nelts(over));
    }

    if (over[0] != NULL) {
        kvr_write_name(w, over[0]);
        kvr_write_raw(w, documents);
    }

    if (over[1] != NULL) {
        kvr_write_name(w, over[1]);
        kvr_write_raw(w, effort);

        if (!kvr_tape_get(t, kwargs, "enable_thinking")) {
            kvr_write_name(w, "enable_thinking");
            kvr_write_text(w, kvr_tape_is(t, effort, "none") ? "false"
                                                             : "true");
        }
    }

    kvr_write_text(w, "}");
    w->first = false;
}


/*
 * Finds a field of a message that vLLM's chats read and its /tokenize ignores.
 * NULL: there is none.  Messages that are not in the tape can't be checked.
 */

static const char *
kvr_question_reasoning(const kvr_tape_t *t)
{
    uint32_t  i, messages;

    messages = kvr_tape_get(t, KVR_TAPE_ROOT, "messages");

    if (t->entries[messages].flags & KVR_TAPE_CUT) {
        return "messages";
    }

    for (i = kvr_tape_first(t, messages); i;
         i = kvr_tape_next(t, messages, i))
    {
        if (kvr_tape_given(t, kvr_tape_get(t, i, "reasoning_content"))) {
            return "reasoning_content";
        }

        if (kvr_tape_given(t, kvr_tape_get(t, i, "reasoning"))) {
            return "reasoning";
        }
    }

    return NULL;
}


static kvr_rc_t
kvr_question_vllm(kvr_writer_t *w, const char **field)
{
    size_t             k;
    const kvr_tape_t  *t;

    t = w->tape;

    *field = kvr_question_reasoning(t);

    if (*field) {
        return KVR_DECLINED;
    }

    /* an option of the engine says whether the template sees the tools then */

    if (kvr_tape_is(t, kvr_tape_get(t, KVR_TAPE_ROOT, "tool_choice"), "none")
        && kvr_tape_given(t, kvr_tape_get(t, KVR_TAPE_ROOT, "tools")))
    {
        *field = "tool_choice";
        return KVR_DECLINED;
    }

    for (k = 0; k < kvr_nelts(kvr_question_chat); k++) {
        kvr_write_field(w, kvr_question_chat[k]);
    }

    kvr_question_kwargs(w);

    return KVR_OK;
}


kvr_rc_t
kvr_question(const kvr_tape_t *t, kvr_form_t form, kvr_engine_kind_t engine,
    char *out, size_t cap, size_t *len, const char **field)
{
    kvr_rc_t        rc;
    kvr_writer_t    w;
    kvr_tokenize_t  asked;

#define way(id, name, owner, asked)  asked,

    static const kvr_tokenize_t  ways[KVR_ENGINES] = {
        KVR_TOKENIZE_VLLM, KVR_ENGINE_ROWS(way)
    };

#undef way

    *len = 0;
    *field = NULL;

    asked = ways[engine];

    if (kvr_question_path(KVR_ASK_REMOTE, form) == NULL
        || asked == KVR_TOKENIZE_NOT
        || kvr_tape_kind(t, KVR_TAPE_ROOT) != KVR_TAPE_OBJECT)
    {
        return KVR_DECLINED;
    }

    w.tape = t;
    w.out = out;
    w.cap = cap;
    w.len = 0;
    w.first = true;

    kvr_write_text(&w, "{");

    if (kvr_form_rows[form].remote == KVR_RUNG_TEXT) {
        rc = kvr_question_text(&w, form, asked, field);

    } else if (kvr_tape_kind(t, kvr_tape_get(t, KVR_TAPE_ROOT, "messages"))
               != KVR_TAPE_ARRAY)
    {
        rc = KVR_DECLINED;

    } else if (asked == KVR_TOKENIZE_SGLANG) {
        kvr_write_members(&w, KVR_TAPE_ROOT, kvr_question_not_sglang,
                          kvr_nelts(kvr_question_not_sglang));
        rc = KVR_OK;

    } else {
        rc = kvr_question_vllm(&w, field);
    }

    if (rc != KVR_OK) {
        return rc;
    }

    kvr_write_text(&w, "}");

    *len = w.len;

    return (w.len > cap) ? KVR_FULL : KVR_OK;
}


/* ---- answers ------------------------------------------------------------ */

kvr_rc_t
kvr_answer_ids(kvr_tape_t *t, const char *text, size_t len,
    const uint32_t **ids, size_t *n, const char **err)
{
    uint32_t  object, i;

    *ids = NULL;
    *n = 0;

    if (kvr_tape_scan(t, text, len) != KVR_OK) {
        *err = t->error;
        return KVR_INVALID;
    }

    object = KVR_TAPE_ROOT;

    if (kvr_tape_kind(t, object) == KVR_TAPE_ARRAY) {
        object = kvr_tape_first(t, object);
    }

    /* TensorRT-LLM's renderer knows when it is not sure of the ids */

    if (kvr_tape_kind(t, kvr_tape_get(t, object, "tokens_trusted"))
        == KVR_TAPE_FALSE)
    {
        *err = "the engine says that its tokens are not to be trusted";
        return KVR_INVALID;
    }

    i = kvr_tape_get(t, object, "tokens");

    if (!kvr_tape_given(t, i)) {
        i = kvr_tape_get(t, object, "token_ids");
    }

    switch (kvr_tape_kind(t, i)) {

    case KVR_TAPE_IDS:
        return kvr_tape_ids(t, i, ids, n);

    case KVR_TAPE_ARRAY:

        if (t->entries[i].len == 0 && !(t->entries[i].flags & KVR_TAPE_CUT)) {
            return KVR_OK;
        }

        *err = "the tokens in the answer are not numbers 0..4294967295";
        return KVR_INVALID;

    default:
        *err = "no tokens in the answer";
        return KVR_INVALID;
    }
}
