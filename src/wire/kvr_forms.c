/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_decoder.h"
#include "kvr_forms.h"


#define kvr_form_bit(form)  (1u << (form))

#define KVR_COMPLETIONS      kvr_form_bit(KVR_FORM_COMPLETIONS)
#define KVR_CHAT             kvr_form_bit(KVR_FORM_CHAT)
#define KVR_MESSAGES         kvr_form_bit(KVR_FORM_MESSAGES)
#define KVR_RESPONSES        kvr_form_bit(KVR_FORM_RESPONSES)
#define KVR_GENERATE         kvr_form_bit(KVR_FORM_GENERATE)
#define KVR_SGLANG_GENERATE  kvr_form_bit(KVR_FORM_SGLANG_GENERATE)

/* the forms of OpenAI's API that SGLang gives to its own one */
#define KVR_OPENAI           (KVR_COMPLETIONS | KVR_CHAT)


/* How a path ends, and the engines that have it.  The first row counts. */

typedef struct {
    const char  *end;
    kvr_form_t   form;
    uint32_t     engines;
} kvr_form_path_t;


static const kvr_form_path_t  kvr_form_paths[] = {
    { "/chat/completions", KVR_FORM_CHAT, KVR_ANY },
    { "/completions", KVR_FORM_COMPLETIONS, KVR_ANY },
    { "/v1/messages", KVR_FORM_MESSAGES, KVR_ANY },
    { "/v1/responses", KVR_FORM_RESPONSES, KVR_ANY },
    { "/inference/v1/generate", KVR_FORM_GENERATE, KVR_VLLM },
    { "/api/generate", KVR_FORM_NO_PROMPT, KVR_ANY },
    { "/generate", KVR_FORM_SGLANG_GENERATE, KVR_SGLANG },

    { "/tokenize", KVR_FORM_NO_LOAD, KVR_ANY },
    { "/detokenize", KVR_FORM_NO_LOAD, KVR_ANY },
    { "/count_tokens", KVR_FORM_NO_LOAD, KVR_ANY },
    { "/render", KVR_FORM_NO_LOAD, KVR_ANY },
    { "/derender", KVR_FORM_NO_LOAD, KVR_ANY },

    { "/embeddings", KVR_FORM_NO_PROMPT, KVR_ANY },
    { "/v2/embed", KVR_FORM_NO_PROMPT, KVR_ANY },
    { "/pooling", KVR_FORM_NO_PROMPT, KVR_ANY },
    { "/classify", KVR_FORM_NO_PROMPT, KVR_ANY },
    { "/encode", KVR_FORM_NO_PROMPT, KVR_ANY },
    { "/rerank", KVR_FORM_NO_PROMPT, KVR_ANY },
    { "/score", KVR_FORM_NO_PROMPT, KVR_ANY },
    { "/audio/transcriptions", KVR_FORM_NO_PROMPT, KVR_ANY },
    { "/audio/translations", KVR_FORM_NO_PROMPT, KVR_ANY },
    { "/invocations", KVR_FORM_NO_PROMPT, KVR_ANY },
    { "/api/chat", KVR_FORM_NO_PROMPT, KVR_ANY },

    { NULL, KVR_FORM_UNKNOWN, 0 }
};


typedef struct {
    kvr_field_t  field;
    uint32_t     forms;
    uint32_t     engines;
} kvr_form_field_t;


static const kvr_form_field_t  kvr_form_ids_fields[] = {
    { { NULL, "prompt" }, KVR_COMPLETIONS, KVR_ANY },
    { { "kv_transfer_params", "prompt_token_ids" },
      KVR_CHAT | KVR_MESSAGES | KVR_RESPONSES, KVR_VLLM },
    { { NULL, "input_ids" }, KVR_CHAT | KVR_SGLANG_GENERATE, KVR_SGLANG },
    { { NULL, "prompt_token_ids" }, KVR_CHAT, KVR_TRTLLM },
    { { NULL, "token_ids" }, KVR_GENERATE, KVR_VLLM },
};


static const kvr_form_field_t  kvr_form_numbers[] = {
    { { NULL, "n" }, KVR_OPENAI, KVR_ANY },
    { { NULL, "best_of" }, KVR_OPENAI, KVR_TRTLLM },
    { { "sampling_params", "n" }, KVR_GENERATE | KVR_SGLANG_GENERATE,
      KVR_ANY },
};


#define filled(name, forms, engines)                                          \
    { { NULL, name }, { NULL, NULL }, KVR_FIELD_FILLED, false, forms, engines }

static const kvr_field_rule_t  kvr_form_rules[] = {

    /* the engine reads nothing of its cache */

    { { NULL, "prompt_logprobs" }, { NULL, NULL }, KVR_FIELD_GIVEN, false,
      KVR_OPENAI, KVR_VLLM | KVR_TRTLLM },
    { { "sampling_params", "prompt_logprobs" }, { NULL, NULL },
      KVR_FIELD_GIVEN, false, KVR_GENERATE, KVR_VLLM },
    { { "sampling_params", "prompt_logprob_token_ids" }, { NULL, NULL },
      KVR_FIELD_GIVEN, false, KVR_GENERATE, KVR_VLLM },
    { { "sampling_params", "skip_reading_prefix_cache" }, { NULL, NULL },
      KVR_FIELD_TRUE, false, KVR_GENERATE, KVR_VLLM },
    { { NULL, "echo" }, { NULL, NULL }, KVR_FIELD_TRUE, false,
      KVR_CHAT, KVR_VLLM },
    { { NULL, "echo" }, { NULL, "logprobs" }, KVR_FIELD_WITH, false,
      KVR_COMPLETIONS, KVR_ANY },
    { { NULL, "logprob_start_len" }, { NULL, "return_logprob" },
      KVR_FIELD_NOT_NEGATIVE, false, KVR_SGLANG_GENERATE, KVR_SGLANG },

    /* the prompt is, or has, more than these tokens */

    filled("prompt_embeds", KVR_COMPLETIONS, KVR_VLLM),
    filled("input_embeds", KVR_SGLANG_GENERATE, KVR_SGLANG),
    filled("session_params", KVR_OPENAI | KVR_SGLANG_GENERATE, KVR_SGLANG),
    filled("image_data", KVR_SGLANG_GENERATE, KVR_SGLANG),
    filled("video_data", KVR_SGLANG_GENERATE, KVR_SGLANG),
    filled("audio_data", KVR_SGLANG_GENERATE, KVR_SGLANG),
    filled("content_parts", KVR_GENERATE, KVR_VLLM),
    filled("previous_response_id", KVR_RESPONSES, KVR_ANY),
    { { NULL, "suffix" }, { NULL, NULL }, KVR_FIELD_GIVEN, true,
      KVR_COMPLETIONS, KVR_ANY },

    /* a namespace that no event names */

    filled("extra_key",
           KVR_OPENAI | KVR_RESPONSES | KVR_SGLANG_GENERATE, KVR_SGLANG),
    filled("lora_request", KVR_OPENAI, KVR_TRTLLM),
};

#undef filled


#define engine(id, name, ...)  name,

const char *const  kvr_engines[] = {
    "unknown", KVR_ENGINE_ROWS(engine) NULL
};

#undef engine


#define form(id, name, text, plain, render, probe, remote, salted)            \
    { name, text, plain, render, remote, salted },

const kvr_form_row_t  kvr_form_rows[KVR_FORMS] = { KVR_FORM_ROWS(form) };

#undef form


/* A set without the kind "unknown": the kinds that stand for it instead. */

static uint32_t
kvr_form_engines(uint32_t engines)
{
    if (engines == 0 || engines & kvr_engine_bit(KVR_ENGINE_UNKNOWN)) {
        engines |= KVR_VLLM | KVR_SGLANG;
    }

    return engines & KVR_ANY;
}


kvr_form_t
kvr_form(bool asks, const char *path, size_t len, uint32_t engines)
{
    size_t                  n;
    const kvr_form_path_t  *p;

    if (!asks) {
        return KVR_FORM_NO_LOAD;
    }

    for (p = kvr_form_paths; p->end != NULL; p++) {
        n = strlen(p->end);

        if (n <= len && memcmp(path + len - n, p->end, n) == 0) {
            return p->engines & kvr_form_engines(engines) ? p->form
                                                          : KVR_FORM_UNKNOWN;
        }
    }

    return KVR_FORM_UNKNOWN;
}


/*
 * Finds field number i among the rows of a table that apply.  NULL: there are
 * no more.
 */

static const kvr_field_t *
kvr_form_field(const kvr_form_field_t *f, size_t n, kvr_form_t form,
    uint32_t engines, uint32_t i)
{
    engines = kvr_form_engines(engines);

    for ( /* void */ ; n; n--, f++) {

        if (f->forms & kvr_form_bit(form) && f->engines & engines
            && i-- == 0)
        {
            return &f->field;
        }
    }

    return NULL;
}


const kvr_field_t *
kvr_form_ids(kvr_form_t form, uint32_t engines, uint32_t i)
{
    return kvr_form_field(kvr_form_ids_fields, kvr_nelts(kvr_form_ids_fields),
                          form, engines, i);
}


const kvr_field_t *
kvr_form_sequences(kvr_form_t form, uint32_t engines, uint32_t i)
{
    return kvr_form_field(kvr_form_numbers, kvr_nelts(kvr_form_numbers), form,
                          engines, i);
}


const kvr_field_rule_t *
kvr_form_rule(kvr_form_t form, uint32_t engines, uint32_t *i)
{
    const kvr_field_rule_t  *rule;

    engines = kvr_form_engines(engines);

    while (*i < kvr_nelts(kvr_form_rules)) {
        rule = &kvr_form_rules[(*i)++];

        if (rule->forms & kvr_form_bit(form) && rule->engines & engines) {
            return rule;
        }
    }

    return NULL;
}


bool
kvr_form_has_salt(kvr_form_t form, uint32_t engines)
{
    return kvr_form_rows[form].salted & kvr_form_engines(engines);
}


bool
kvr_form_has_lora_path(kvr_form_t form, uint32_t engines)
{
    return (KVR_OPENAI | KVR_SGLANG_GENERATE) & kvr_form_bit(form)
           && kvr_form_engines(engines) & KVR_SGLANG;
}


bool
kvr_form_has_base_adapter(kvr_form_t form, uint32_t engines)
{
    return (KVR_OPENAI | KVR_MESSAGES | KVR_RESPONSES) & kvr_form_bit(form)
           && kvr_form_engines(engines) & KVR_SGLANG;
}


kvr_rc_t
kvr_form_truncates(kvr_form_t form, uint32_t engines, bool *cut)
{
    *cut = false;

    if ((KVR_OPENAI & kvr_form_bit(form)) == 0) {
        return KVR_OK;
    }

    /* some of these engines cut the prompt and others don't: the answer is
       unknown */

    if (engines != 0
        && (engines & kvr_engine_bit(KVR_ENGINE_UNKNOWN)) == 0)
    {
        engines &= KVR_ANY;

        if (engines == KVR_SGLANG) {
            return KVR_OK;
        }

        if (engines != KVR_VLLM) {
            return KVR_DECLINED;
        }

    } else if (engines & KVR_TRTLLM) {
        return KVR_DECLINED;
    }

    *cut = true;

    return KVR_OK;
}


const char *
kvr_engine_name(uint32_t kind)
{
    return kind < KVR_ENGINES ? kvr_engines[kind] : "unknown";
}


kvr_engine_kind_t
kvr_engine_kind(const char *name, size_t len)
{
    uint32_t  i;

    return kvr_word_at(kvr_engines, name, len, &i) ? (kvr_engine_kind_t) i
                                                   : KVR_ENGINES;
}


const char *
kvr_form_name(uint32_t form)
{
    return form < KVR_FORMS ? kvr_form_rows[form].name : "unknown";
}


const char *
kvr_rung_name(uint32_t i)
{
#define rung(id, name, ...)  "render_" name,

    static const char *const  names[] = { KVR_FORM_ROWS(rung) };

#undef rung

    if (i < kvr_nelts(names)) {
        return names[i];
    }

    return 1u << i == KVR_RUNG_TEXT ? "tokenize_completions"
                                    : "tokenize_chat";
}
