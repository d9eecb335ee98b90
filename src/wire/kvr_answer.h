/*
 * Copyright (C) the nginx-kv-router authors
 *
 * An engine's answer: the length of the prompt, and how much of the prompt the
 * engine had cached.  Each API says this in its own words:
 *
 *     OpenAI's completions and chats, vLLM's generate
 *         "usage":{"prompt_tokens":9,
 *                  "prompt_tokens_details":{"cached_tokens":8}}
 *     OpenAI's responses; streamed, in the event response.completed
 *         "usage":{"input_tokens":9,
 *                  "input_tokens_details":{"cached_tokens":8}}
 *     Anthropic's messages; streamed, in message_start or message_delta.  The
 *     prompt's length is the sum
 *         "usage":{"input_tokens":1,"cache_read_input_tokens":8,
 *                  "cache_creation_input_tokens":0}
 *     SGLang's generate
 *         "meta_info":{"prompt_tokens":9,"cached_tokens":8}
 *
 * The object can stand at the head, at the tail, or in front of megabytes of
 * logprobs and token ids: so the whole answer is searched while it passes, and
 * nothing of it is kept but the figures.
 */


#ifndef KVR_ANSWER_H_INCLUDED
#define KVR_ANSWER_H_INCLUDED


#include "kvr_forms.h"


/* the maximum length of a key, at least that of the longest name that is
   looked for */
#define KVR_ANSWER_WORD      32
/* the maximum depth: an object that is nested deeper is not read */
#define KVR_ANSWER_DEPTH     64


typedef enum {
    KVR_ANSWER_NONE = 0,
    KVR_ANSWER_PROMPT,          /* prompt_tokens, input_tokens */
    KVR_ANSWER_CACHED,          /* cached_tokens */
    KVR_ANSWER_READ,            /* cache_read_input_tokens */
    KVR_ANSWER_CREATED,         /* cache_creation_input_tokens */
    KVR_ANSWER_COMPLETION,      /* completion_tokens, output_tokens */
    KVR_ANSWER_FIGURES
} kvr_answer_figure_t;


/* The state of the search. */
typedef struct {
    const char         *key;        /* sought, with its quotes; NULL: none */
    kvr_form_t          form;
    uint32_t            matched;    /* bytes of the key at the end of what was
                                       added */
    uint32_t            depth;      /* in the key's object; 0: not there */
    bool                colon;      /* the key was found, and then a colon */
    bool                string;     /* in a string */
    bool                escape;     /* behind a backslash */
    bool                details;    /* in the object of the details */

    char                word[KVR_ANSWER_WORD];  /* the last string */
    uint32_t            word_len;   /* over KVR_ANSWER_WORD: none */
    kvr_answer_figure_t figure;     /* of the number being read */
    uint32_t            digits;
    uint64_t            number;

    uint32_t            inside;     /* a bit for each figure of the object */
    uint32_t            known;      /* a bit for each figure of the answer */
    uint32_t            object[KVR_ANSWER_FIGURES];
    uint32_t            figures[KVR_ANSWER_FIGURES];
} kvr_answer_t;


typedef struct {
    bool        has_prompt;
    bool        has_cached;
    uint64_t    prompt_tokens;
    uint64_t    cached_tokens;
    uint64_t    completion_tokens;  /* 0: not known */
} kvr_answer_usage_t;


/* Starts an answer to a request of that form. */
void kvr_answer_init(kvr_answer_t *a, kvr_form_t form);

/* Searches the next piece of the answer. */
void kvr_answer_add(kvr_answer_t *a, const void *data, size_t len);

/*
 * Records that a part of the answer is missing here.  The figures found before
 * stay.
 */
void kvr_answer_gap(kvr_answer_t *a);

/*
 * The figures found until now.  Of several objects with the same figure the
 * last one counts; with SGLang's generate, whose answer to several prompts has
 * an object for each, the first one.  False: nothing was found.
 */
bool kvr_answer_usage(const kvr_answer_t *a, kvr_answer_usage_t *usage);


#endif /* KVR_ANSWER_H_INCLUDED */
