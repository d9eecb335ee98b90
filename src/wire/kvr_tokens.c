/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_tokens.h"


/* Types of the parts of a message that are text, and keys that are not. */

static const char *const  kvr_prompt_text_types[] = {
    "text", "input_text", "output_text", "refusal", "thinking",
    "tool_reference"
};

static const char *const  kvr_prompt_media_keys[] = {
    "image_url", "input_image", "image_embeds", "image_pil", "audio_url",
    "input_audio", "audio_embeds", "video_url", "video_embeds",
    "prompt_embeds"
};


static kvr_rc_t
kvr_prompt_fail(kvr_prompt_t *p, const kvr_tape_t *t, uint32_t i,
    const char *error)
{
    p->error = error;
    p->error_at = t->entries[i].at;

    return KVR_INVALID;
}


/*
 * The value of a field.  Where parameters are an array, one for each prompt,
 * those of the first prompt count.
 */

static uint32_t
kvr_prompt_find(const kvr_tape_t *t, const kvr_field_t *f)
{
    uint32_t  object;

    object = KVR_TAPE_ROOT;

    if (f->object != NULL) {
        object = kvr_tape_get(t, KVR_TAPE_ROOT, f->object);

        if (kvr_tape_kind(t, object) == KVR_TAPE_ARRAY) {
            object = kvr_tape_first(t, object);
        }

        if (kvr_tape_kind(t, object) != KVR_TAPE_OBJECT) {
            return 0;
        }
    }

    return kvr_tape_get(t, object, f->name);
}


static uint32_t
kvr_prompt_top(const kvr_tape_t *t, const char *name)
{
    return kvr_tape_get(t, KVR_TAPE_ROOT, name);
}


/* ---- token ids ---------------------------------------------------------- */

static bool
kvr_prompt_is_number(kvr_tape_kind_t kind)
{
    return kind == KVR_TAPE_INT || kind == KVR_TAPE_FLOAT;
}


/*
 * Is the entry an array of numbers?  An empty array is one: a prompt of no
 * tokens.
 */

static bool
kvr_prompt_has_numbers(const kvr_tape_t *t, uint32_t i)
{
    kvr_tape_kind_t  kind;

    kind = kvr_tape_kind(t, i);

    return kind == KVR_TAPE_IDS
           || (kind == KVR_TAPE_ARRAY && !(t->entries[i].flags & KVR_TAPE_CUT)
               && (t->entries[i].len == 0
                   || kvr_prompt_is_number(kvr_tape_kind(t, i + 1))));
}


/* The ids of an array of numbers. */

static kvr_rc_t
kvr_prompt_ids(kvr_prompt_t *p, kvr_tape_t *t, uint32_t i)
{
    uint32_t  at;
    uint64_t  value;

    p->has_ids = true;

    if (kvr_tape_kind(t, i) == KVR_TAPE_IDS) {
        return kvr_tape_ids(t, i, &p->tokens, &p->ntokens);
    }

    for (at = kvr_tape_first(t, i); at; at = kvr_tape_next(t, i, at)) {

        if (!kvr_tape_u64(t, at, &value) || value > UINT32_MAX) {
            return kvr_prompt_fail(p, t, at, "a token id 0..4294967295 was "
                                             "expected");
        }
    }

    return KVR_OK;
}


/* Reads [ids] or [[ids], …].  KVR_DECLINED: there are no ids. */

static kvr_rc_t
kvr_prompt_value(kvr_prompt_t *p, kvr_tape_t *t, uint32_t i)
{
    uint32_t  first, at;

    if (kvr_prompt_has_numbers(t, i)) {
        p->prompts = 1;
        return kvr_prompt_ids(p, t, i);
    }

    if (kvr_tape_kind(t, i) != KVR_TAPE_ARRAY) {
        return KVR_DECLINED;
    }

    first = kvr_tape_first(t, i);

    if (!kvr_prompt_has_numbers(t, first)) {
        return KVR_DECLINED;
    }

    p->prompts = t->entries[i].len;

    for (at = kvr_tape_next(t, i, first); at; at = kvr_tape_next(t, i, at)) {
        if (kvr_tape_kind(t, at) == KVR_TAPE_IDS) {
            p->others += t->entries[at].len;
        }
    }

    return kvr_prompt_ids(p, t, first);
}


/* Is the part of a message's content something other than text? */

static bool
kvr_prompt_is_media(const kvr_tape_t *t, uint32_t part)
{
    size_t    k;
    uint32_t  type;

    if (kvr_tape_kind(t, part) != KVR_TAPE_OBJECT) {
        return false;
    }

    for (k = 0; k < kvr_nelts(kvr_prompt_media_keys); k++) {
        if (kvr_tape_get(t, part, kvr_prompt_media_keys[k])) {
            return true;
        }
    }

    type = kvr_tape_get(t, part, "type");

    for (k = 0; type && k < kvr_nelts(kvr_prompt_text_types); k++) {
        if (kvr_tape_is(t, type, kvr_prompt_text_types[k])) {
            return false;
        }
    }

    return type != 0;
}


/*
 * Does a message have parts other than text?  A message that can't be read
 * counts as having some.
 */

static bool
kvr_prompt_has_media(const kvr_tape_t *t)
{
    uint32_t  messages, i, content, part;

    messages = kvr_prompt_top(t, "messages");

    if (messages && t->entries[messages].flags & KVR_TAPE_CUT) {
        return true;
    }

    for (i = kvr_tape_first(t, messages);
         i;
         i = kvr_tape_next(t, messages, i))
    {
        if (kvr_tape_kind(t, i) != KVR_TAPE_OBJECT) {
            continue;
        }

        content = kvr_tape_get(t, i, "content");

        if (kvr_tape_kind(t, content) != KVR_TAPE_ARRAY) {
            continue;
        }

        for (part = kvr_tape_first(t, content);
             part;
             part = kvr_tape_next(t, content, part))
        {
            if (kvr_prompt_is_media(t, part)) {
                return true;
            }
        }
    }

    return false;
}


static kvr_rc_t
kvr_prompt_find_ids(kvr_prompt_t *p, kvr_tape_t *t, kvr_form_t form,
    uint32_t engines)
{
    uint32_t            k, i;
    kvr_rc_t            rc;
    const kvr_field_t  *f;

    for (k = 0; (f = kvr_form_ids(form, engines, k)) != NULL; k++) {
        i = kvr_prompt_find(t, f);

        /* vLLM leaves ids aside that would replace media */

        if (!kvr_tape_given(t, i)
            || (f->object != NULL && kvr_prompt_has_media(t)))
        {
            continue;
        }

        rc = kvr_prompt_value(p, t, i);

        if (rc != KVR_DECLINED) {

            if (rc == KVR_OK && f->object == NULL) {
                kvr_prompt_cut(&p->cut, &p->tokens, &p->ntokens);
            }

            return rc;
        }
    }

    return KVR_OK;
}


/* Finds the texts of the prompt, in the fields that the form has for texts. */

static void
kvr_prompt_find_text(kvr_prompt_t *p, const kvr_tape_t *t, kvr_form_t form)
{
    uint32_t     i;
    const char  *name;

    name = kvr_form_rows[form].text;

    if (name == NULL) {
        return;
    }

    i = kvr_prompt_top(t, name);

    if (kvr_tape_kind(t, i) == KVR_TAPE_STRING) {
        p->text = true;
        p->prompts = 1;
        return;
    }

    if (kvr_tape_kind(t, i) != KVR_TAPE_ARRAY) {
        return;
    }

    if (!kvr_form_rows[form].plain) {
        p->text = true;
        p->prompts = 1;

    } else if (kvr_tape_kind(t, kvr_tape_first(t, i)) == KVR_TAPE_STRING) {
        p->text = true;
        p->prompts = t->entries[i].len;
    }
}


/* ---- the size of a text ------------------------------------------------- */

/* Is the key that of media: of a part, or of base64 in Anthropic's source? */

static bool
kvr_prompt_media_key(const kvr_tape_t *t, uint32_t key)
{
    size_t           k;
    kvr_json_text_t  name;

    name = kvr_tape_text(t, key);

    /* most keys begin with none of these letters */

    if (name.len == 0 || strchr("\\aipsv", *name.data) == NULL) {
        return false;
    }

    for (k = 0; k < kvr_nelts(kvr_prompt_media_keys); k++) {
        if (kvr_json_is(&name, kvr_prompt_media_keys[k])) {
            return true;
        }
    }

    return kvr_json_is(&name, "source")
           && kvr_tape_is(t, kvr_tape_get(t, key + 1, "type"), "base64");
}


/* Only messages have media: the same keys in tools are text to an engine. */

size_t
kvr_prompt_bytes(const kvr_tape_t *t)
{
    bool                     messages;
    size_t                   n;
    uint32_t                 i, top;
    kvr_json_text_t          name;
    const kvr_tape_entry_t  *e;

    n = 0;
    messages = false;
    top = kvr_tape_first(t, KVR_TAPE_ROOT);

    for (i = KVR_TAPE_ROOT; i < t->n; i++) {
        e = &t->entries[i];

        if (i == top) {
            top = e->next;
            name = kvr_tape_text(t, i);
            messages = e->kind == KVR_TAPE_KEY
                       && (kvr_json_is(&name, "messages")
                           || kvr_json_is(&name, "input"));

        } else if (messages && e->kind == KVR_TAPE_KEY
                   && kvr_prompt_media_key(t, i))
        {
            i = e->next - 1;
            continue;
        }

        if (e->kind == KVR_TAPE_IDS) {
            n += (size_t) e->len * 4;

        } else if (e->flags & KVR_TAPE_CUT
                   || (e->kind != KVR_TAPE_ARRAY
                       && e->kind != KVR_TAPE_OBJECT))
        {
            n += e->end - e->at;

        } else {
            n += 2;
        }
    }

    return n;
}


/* ---- the rest ----------------------------------------------------------- */

void
kvr_prompt_cut(const kvr_prompt_cut_t *cut, const uint32_t **tokens,
    size_t *n)
{
    if (!cut->on || *n <= cut->keep) {
        return;
    }

    if (cut->left) {
        *tokens += *n - (size_t) cut->keep;
    }

    *n = (size_t) cut->keep;
}


/*
 * vLLM's tokenizers cut from the left unless the request says otherwise.  A
 * number below 0 stands for the model's limit, which is not known here.
 */

static void
kvr_prompt_find_cut(kvr_prompt_t *p, const kvr_tape_t *t, kvr_form_t form,
    uint32_t engines)
{
    bool      on;
    uint32_t  i, side;

    i = kvr_prompt_top(t, "truncate_prompt_tokens");

    if (!kvr_tape_given(t, i)) {
        return;
    }

    side = kvr_prompt_top(t, "truncation_side");

    if (kvr_form_truncates(form, engines, &on) != KVR_OK
        || (on && (!kvr_tape_u64(t, i, &p->cut.keep)
                   || (kvr_tape_given(t, side)
                       && !kvr_tape_is(t, side, "left")
                       && !kvr_tape_is(t, side, "right")))))
    {
        p->field = "truncate_prompt_tokens";
        return;
    }

    p->cut.on = on;
    p->cut.left = !kvr_tape_is(t, side, "right");
}


/* Is the value neither null, nor false, nor "", [] or {}? */

static bool
kvr_prompt_filled(const kvr_tape_t *t, uint32_t i)
{
    switch (kvr_tape_kind(t, i)) {

    case KVR_TAPE_NONE:
    case KVR_TAPE_NULL:
    case KVR_TAPE_FALSE:
        return false;

    case KVR_TAPE_STRING:
    case KVR_TAPE_ARRAY:
    case KVR_TAPE_OBJECT:
        return t->entries[i].len || t->entries[i].flags & KVR_TAPE_CUT;

    default:
        return true;
    }
}


static bool
kvr_prompt_applies(const kvr_tape_t *t, const kvr_field_rule_t *rule)
{
    uint32_t  i, other;
    uint64_t  value;

    i = kvr_prompt_find(t, &rule->field);

    switch (rule->when) {

    case KVR_FIELD_GIVEN:
        return kvr_tape_given(t, i);

    case KVR_FIELD_FILLED:
        return kvr_prompt_filled(t, i);

    case KVR_FIELD_TRUE:
        return kvr_tape_kind(t, i) == KVR_TAPE_TRUE;

    case KVR_FIELD_WITH:
        other = kvr_prompt_find(t, &rule->other);

        return kvr_tape_kind(t, i) == KVR_TAPE_TRUE
               && kvr_tape_given(t, other);

    default: /* KVR_FIELD_NOT_NEGATIVE */
        other = kvr_prompt_find(t, &rule->other);

        return kvr_tape_u64(t, i, &value)
               && kvr_tape_kind(t, other) == KVR_TAPE_TRUE;
    }
}


static void
kvr_prompt_find_rule(kvr_prompt_t *p, const kvr_tape_t *t, kvr_form_t form,
    uint32_t engines)
{
    uint32_t                 i;
    const kvr_field_rule_t  *rule;

    i = 0;

    while (p->field == NULL
           && (rule = kvr_form_rule(form, engines, &i)) != NULL)
    {
        if ((!rule->text || p->text) && kvr_prompt_applies(t, rule)) {
            p->field = rule->field.name;
        }
    }
}


static void
kvr_prompt_find_sequences(kvr_prompt_t *p, const kvr_tape_t *t,
    kvr_form_t form, uint32_t engines)
{
    uint32_t            k;
    uint64_t            n, value;
    const kvr_field_t  *f;

    n = 1;

    for (k = 0; (f = kvr_form_sequences(form, engines, k)) != NULL; k++) {
        if (kvr_tape_u64(t, kvr_prompt_find(t, f), &value)) {
            n = kvr_max(n, value);
        }
    }

    n = kvr_min(n, (uint64_t) KVR_SEQUENCES_MAX) * kvr_max(p->prompts, 1u);

    p->sequences = (uint32_t) kvr_min(n, (uint64_t) KVR_SEQUENCES_MAX);
}


/*
 * vLLM's kv_cache_report_mode, in the extra arguments of its sampling; an
 * engine of another kind does not know it.
 */

static void
kvr_prompt_find_reports(kvr_prompt_t *p, const kvr_tape_t *t)
{
    uint32_t  args;

    args = kvr_prompt_top(t, "vllm_xargs");

    if (args == 0) {
        args = kvr_tape_get(t, kvr_prompt_top(t, "sampling_params"),
                            "extra_args");
    }

    p->reports = kvr_tape_is(t, kvr_tape_get(t, args, "kv_cache_report_mode"),
                             "full");
}


/*
 * A string of the body, decoded; where there is one for each prompt, that of
 * the first prompt.
 */

static kvr_rc_t
kvr_prompt_find_string(kvr_prompt_t *p, const kvr_tape_t *t, const char *name,
    kvr_prompt_string_t *out, char *buf)
{
    uint32_t         i;
    kvr_json_text_t  s;

    i = kvr_prompt_top(t, name);

    if (kvr_tape_kind(t, i) == KVR_TAPE_ARRAY) {
        i = kvr_tape_first(t, i);
    }

    if (kvr_tape_kind(t, i) != KVR_TAPE_STRING) {
        return KVR_OK;
    }

    s = kvr_tape_text(t, i);

    out->data = s.data;
    out->len = s.len;

    if (s.escaped) {
        out->data = buf;
        out->len = kvr_json_decode(&s, buf, KVR_PROMPT_STRING_MAX);

        if (out->len > KVR_PROMPT_STRING_MAX) {
            return kvr_prompt_fail(p, t, i,
                                   "a string with escapes is too long");
        }
    }

    return KVR_OK;
}


kvr_rc_t
kvr_prompt_read(kvr_prompt_t *p, kvr_tape_t *t, kvr_form_t form,
    uint32_t engines)
{
    kvr_rc_t  rc;

    /* clear all but the buffers at the end */

    memset(p, 0, offsetof(kvr_prompt_t, model_buf));

    if (kvr_tape_kind(t, KVR_TAPE_ROOT) != KVR_TAPE_OBJECT) {
        return kvr_prompt_fail(p, t, KVR_TAPE_ROOT, "an object was expected");
    }

    if (kvr_prompt_find_string(p, t, "model", &p->model, p->model_buf)
        != KVR_OK
        || (kvr_form_has_salt(form, engines)
            && kvr_prompt_find_string(p, t, "cache_salt", &p->salt,
                                      p->salt_buf)
               != KVR_OK)
        || (kvr_form_has_lora_path(form, engines)
            && kvr_prompt_find_string(p, t, "lora_path", &p->lora,
                                      p->lora_buf)
               != KVR_OK))
    {
        return KVR_INVALID;
    }

    p->stream = kvr_tape_kind(t, kvr_prompt_top(t, "stream")) == KVR_TAPE_TRUE;

    kvr_prompt_find_cut(p, t, form, engines);

    rc = kvr_prompt_find_ids(p, t, form, engines);

    if (rc == KVR_INVALID) {
        p->has_ids = false;
        return rc;
    }

    if (!p->has_ids) {
        kvr_prompt_find_text(p, t, form);
    }

    kvr_prompt_find_rule(p, t, form, engines);
    kvr_prompt_find_sequences(p, t, form, engines);
    kvr_prompt_find_reports(p, t);

    return rc;
}


kvr_form_t
kvr_prompt_form(const kvr_tape_t *t)
{
    size_t  k;

    static const struct {
        const char  *name;
        kvr_form_t   form;
    } fields[] = {
        { "messages", KVR_FORM_CHAT },
        { "input", KVR_FORM_RESPONSES },
        { "token_ids", KVR_FORM_GENERATE },
        { "input_ids", KVR_FORM_SGLANG_GENERATE },
        { "text", KVR_FORM_SGLANG_GENERATE }
    };

    for (k = 0; k < kvr_nelts(fields); k++) {
        if (kvr_tape_given(t, kvr_prompt_top(t, fields[k].name))) {
            return fields[k].form;
        }
    }

    return KVR_FORM_COMPLETIONS;
}
