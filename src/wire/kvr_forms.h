/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The forms of inference requests: which API a path is of, and what engines
 * of which kind read of a body of that form.  Tables only: no text is looked
 * at here but the path.
 *
 * The tables follow the sources of vLLM 0.32, SGLang 0.5.23 and TensorRT-LLM
 * of November 2026.
 */


#ifndef KVR_FORMS_H_INCLUDED
#define KVR_FORMS_H_INCLUDED


#include "../kvr.h"


/*
 * The kinds of engines, one row each:
 *
 *     KVR_ENGINE_…
 *     name       "vllm", …
 *     owner      who owns its models, in the answer to GET /v1/models
 *     asked      in whose way its /tokenize is asked
 *
 * To add one: a row, the fields of its requests in kvr_forms.c, and
 * lua/resty/kv_router/dialect/<name>_<form>.lua for each form whose texts it
 * tokenizes.
 */
#define KVR_ENGINE_ROWS(row)                                                  \
    row(VLLM, "vllm", "vllm", KVR_TOKENIZE_VLLM)                              \
    row(SGLANG, "sglang", "sglang", KVR_TOKENIZE_SGLANG)                      \
    row(TRTLLM, "trtllm", "tensorrt_llm", KVR_TOKENIZE_NOT)

#define KVR_ENGINE_KIND(id, ...)  KVR_ENGINE_##id,
#define KVR_ENGINE_BIT(id, ...)   | kvr_engine_bit(KVR_ENGINE_##id)

/* for sentences: "vllm, sglang, …, " */
#define KVR_ENGINE_WORD(id, name, ...)    name ", "
#define KVR_ENGINE_QUOTED(id, name, ...)  "\"" name "\", "


/* The kind of an engine.  The numbers are kept in the zone. */
typedef enum {
    KVR_ENGINE_UNKNOWN = 0,
    KVR_ENGINE_ROWS(KVR_ENGINE_KIND)
    KVR_ENGINES                 /* the number of those above */
} kvr_engine_kind_t;


/* In whose way an engine is asked at /tokenize. */
typedef enum {
    KVR_TOKENIZE_VLLM = 0,
    KVR_TOKENIZE_SGLANG,
    KVR_TOKENIZE_NOT            /* no such path */
} kvr_tokenize_t;


/*
 * A set of engine kinds has a bit for each.  Of an engine whose kind is
 * unknown, a request is read as vLLM or SGLang would read it.
 */
#define kvr_engine_bit(kind)  (1u << (kind))


#define KVR_VLLM    kvr_engine_bit(KVR_ENGINE_VLLM)
#define KVR_SGLANG  kvr_engine_bit(KVR_ENGINE_SGLANG)
#define KVR_TRTLLM  kvr_engine_bit(KVR_ENGINE_TRTLLM)
#define KVR_ANY     (0 KVR_ENGINE_ROWS(KVR_ENGINE_BIT))


/*
 * Rungs: what an engine can be asked for, a bit each.  A renderer has the bit
 * of its form; /tokenize has two, for a text and for a chat.
 */
#define kvr_rung_render(form)   (1u << (form))
#define KVR_RUNG_RENDER         0x00ffff    /* any renderer */
#define KVR_RUNG_TEXT           0x010000
#define KVR_RUNG_CHAT           0x020000
#define KVR_RUNG_REMOTE         0x030000
#define KVR_RUNGS_MAX           18


/*
 * The forms of requests, one row each; at most 16, as other tables have a
 * place for each.  Forms with a prompt come first.
 *
 *     KVR_FORM_…
 *     name      "chat", …
 *               unknown: a path of which nothing is known
 *               generate: vLLM's own API; sglang_generate: SGLang's
 *               no_prompt: none is looked for: embeddings, rerank, audio, …
 *               no_load: nothing is inferred: tokenize, count_tokens, …; GET
 *     text      the field that can have texts; NULL: there is none
 *     plain     the field has a text or a list of texts: no messages
 *     render    the path of its renderer; "": there is none
 *     probe     the members by which a probe asks the renderer
 *     remote    the rung of /tokenize that can be asked; 0: none
 *     salted    engines for which "cache_salt" names a namespace of the cache
 *
 * To add one: a row, how its path ends and its fields in kvr_forms.c, and, if
 * its text is not plain, the dialects of engines (see above).
 */
#define KVR_FORM_ROWS(row)                                                    \
    row(UNKNOWN, "unknown", NULL, false, "", NULL, 0, 0)                      \
    row(COMPLETIONS, "completions", "prompt", true,                           \
        "/v1/completions/render", "\"prompt\":\"Hello\"",                     \
        KVR_RUNG_TEXT, KVR_ANY)                                               \
    row(CHAT, "chat", "messages", false,                                      \
        "/v1/chat/completions/render", KVR_PROBE_CHAT,                        \
        KVR_RUNG_CHAT, KVR_ANY)                                               \
    row(MESSAGES, "messages", "messages", false,                              \
        "/v1/messages/render", "\"max_tokens\":1," KVR_PROBE_CHAT,            \
        0, KVR_VLLM)                                                          \
    row(RESPONSES, "responses", "input", false,                               \
        "/v1/responses/render", "\"input\":\"Hello\"",                        \
        0, KVR_VLLM | KVR_SGLANG)                                             \
    row(GENERATE, "generate", NULL, false, "", NULL, 0, KVR_VLLM)             \
    row(SGLANG_GENERATE, "sglang_generate", "text", true, "", NULL,           \
        KVR_RUNG_TEXT, KVR_SGLANG)                                            \
    row(NO_PROMPT, "no_prompt", NULL, false, "", NULL, 0, 0)                  \
    row(NO_LOAD, "no_load", NULL, false, "", NULL, 0, 0)

#define KVR_PROBE_CHAT                                                        \
    "\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]"

#define KVR_FORM_NUMBER(id, ...)  KVR_FORM_##id,


/* The form of a request. */
typedef enum {
    KVR_FORM_ROWS(KVR_FORM_NUMBER)
    KVR_FORMS                   /* the number of those above */
} kvr_form_t;


/* A row of the table, without what only a probe sends. */
typedef struct {
    const char  *name;
    const char  *text;
    bool         plain;
    const char  *render;
    uint32_t     remote;
    uint32_t     salted;
} kvr_form_row_t;

extern const kvr_form_row_t  kvr_form_rows[KVR_FORMS];


/* A field of a body: a member at the top, or of an object at the top. */
typedef struct {
    const char  *object;        /* NULL: the field is at the top */
    const char  *name;
} kvr_field_t;


/* When a field means that cached blocks can't be told. */
typedef enum {
    KVR_FIELD_GIVEN = 0,        /* the field is there, and not null */
    KVR_FIELD_TRUE,             /* the field is true */
    KVR_FIELD_FILLED,           /* the field is there, and neither null, nor
                                   false, nor empty */
    KVR_FIELD_WITH,             /* the field is true, and another one given */
    KVR_FIELD_NOT_NEGATIVE      /* the field is an integer from 0 on, and
                                   another one is true */
} kvr_field_when_t;


typedef struct {
    kvr_field_t       field;
    kvr_field_t       other;    /* of the last two conditions */
    kvr_field_when_t  when;
    bool              text;     /* the rule is for texts only, not for ids */
    uint32_t          forms;    /* a bit for each kvr_form_t */
    uint32_t          engines;  /* a bit for each kvr_engine_kind_t */
} kvr_field_rule_t;


/*
 * The form of a request.  asks: the method is POST or PUT; every other method
 * has the form KVR_FORM_NO_LOAD.  path: what the request line has, decoded,
 * without arguments, whatever stands before its last segments.  engines: the
 * set of the kinds that may get the request; 0 counts as unknown.
 */
kvr_form_t kvr_form(bool asks, const char *path, size_t len,
    uint32_t engines);

/*
 * The fields in which a request of that form can have token ids, in the order
 * in which they count: i from 0 on; NULL: no more.
 */
const kvr_field_t *kvr_form_ids(kvr_form_t form, uint32_t engines, uint32_t i);

/*
 * The fields of that form for which cached blocks can't be told: i from 0 on,
 * which the call moves; NULL: no more.
 */
const kvr_field_rule_t *kvr_form_rule(kvr_form_t form, uint32_t engines,
    uint32_t *i);

/* Does "cache_salt", or "lora_path", name a namespace of the cache? */
bool kvr_form_has_salt(kvr_form_t form, uint32_t engines);
bool kvr_form_has_lora_path(kvr_form_t form, uint32_t engines);

/* Can an adapter stand in "model" behind the model and a colon? */
bool kvr_form_has_base_adapter(kvr_form_t form, uint32_t engines);

/*
 * Is the prompt cut by "truncate_prompt_tokens"?  KVR_DECLINED: some of the
 * engines may cut it, and where is not known.
 */
kvr_rc_t kvr_form_truncates(kvr_form_t form, uint32_t engines, bool *cut);

/*
 * The fields that give the number of sequences of each prompt; the largest
 * number counts. i starts at 0; NULL: there are no more.
 */
const kvr_field_t *kvr_form_sequences(kvr_form_t form, uint32_t engines,
    uint32_t i);


/* "unknown", "vllm", "sglang", "trtllm" */
const char *kvr_engine_name(uint32_t kind);

/* These names by their numbers, then NULL. */
extern const char *const  kvr_engines[];

/* The kind of that name; KVR_ENGINES: no such kind. */
kvr_engine_kind_t kvr_engine_kind(const char *name, size_t len);

/* "unknown", "completions", "chat", …, "no_prompt", "no_load" */
const char *kvr_form_name(uint32_t form);

/*
 * The rung 1 << i in a word: "render_completions", …, "tokenize_completions",
 * "tokenize_chat"; i < KVR_RUNGS_MAX.
 */
const char *kvr_rung_name(uint32_t i);


#endif /* KVR_FORMS_H_INCLUDED */
