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


/* The kind of an engine.  The numbers are kept in the zone. */
typedef enum {
    KVR_ENGINE_UNKNOWN = 0,
    KVR_ENGINE_VLLM,
    KVR_ENGINE_SGLANG,
    KVR_ENGINE_TRTLLM,          /* TensorRT-LLM */
    KVR_ENGINES                 /* the number of those above */
} kvr_engine_kind_t;


/*
 * A set of engine kinds has a bit for each.  Of an engine whose kind is
 * unknown, a request is read as vLLM or SGLang would read it.
 */
#define kvr_engine_bit(kind)  (1u << (kind))


/* The form of a request.  At most 16: other tables have a place for each. */
typedef enum {
    KVR_FORM_UNKNOWN = 0,       /* a path of which nothing is known */
    KVR_FORM_COMPLETIONS,       /* /v1/completions */
    KVR_FORM_CHAT,              /* /v1/chat/completions */
    KVR_FORM_MESSAGES,          /* /v1/messages, Anthropic's API */
    KVR_FORM_RESPONSES,         /* /v1/responses */
    KVR_FORM_GENERATE,          /* /inference/v1/generate of vLLM */
    KVR_FORM_SGLANG_GENERATE,   /* /generate of SGLang */
    KVR_FORM_NO_PROMPT,         /* no prompt is looked for: embeddings, rerank,
                                   audio, … */
    KVR_FORM_NO_LOAD,           /* nothing is inferred: tokenize,
                                   count_tokens, …; GET */
    KVR_FORMS                   /* the number of those above */
} kvr_form_t;


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

/* The field in which it can have texts instead; NULL: none. */
const char *kvr_form_text(kvr_form_t form);

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


#endif /* KVR_FORMS_H_INCLUDED */
