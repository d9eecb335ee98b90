/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A model as the rung `local` needs it: a tokenizer, and the files of which
 * chat templates are made.
 *
 *     rc = kvr_model_load(&model, "/etc/nginx/models/qwen3", NULL, known, n,
 *                         why, sizeof(why));
 *
 *     if (rc != KVR_OK) { … why … }
 *
 *     if (kvr_model_tokenizer(model) == NULL) { … kvr_model_refused(model) … }
 *
 *     kvr_model_put(model);
 *
 * A directory is one of two kinds.  kv-model-dump writes router.json, which
 * names all other files with their SHA-256 and says what the engine makes of
 * known texts.  A directory of Hugging Face has no router.json: the caller
 * says which engine runs the model, and nothing is known of its ids.
 *
 * A directory that can't be read, is incomplete, or does not fit its digests
 * is an error.  A directory which is whole, but whose model can't be tokenized
 * here, is a model that is refused: it has no tokenizer.
 *
 * A model is made and freed by one process, and does not change afterwards,
 * but for the mark of kvr_model_prove(): processes that were forked, and
 * threads, can read it without a lock.
 */


#ifndef KVR_MODEL_H_INCLUDED
#define KVR_MODEL_H_INCLUDED


#include "../kvr.h"
#include "../token/kvr_tokenizer.h"


#define KVR_MODEL_TOKENIZER_MAX  (64u << 20)    /* bytes of tokenizer.json */
#define KVR_MODEL_TEMPLATE_MAX   (1u << 20)     /* of any other file */
#define KVR_MODEL_ROUTER_MAX     (16u << 20)    /* of router.json */
#define KVR_MODEL_FILES          16             /* of a directory */
#define KVR_MODEL_WHY            512            /* bytes of a sentence, of
                                                   each "why" */


typedef struct kvr_model_s  kvr_model_t;


/*
 * Loads a directory, or takes over one of the n models known whose files are
 * the same.  engine: "vllm", "sglang", "trtllm", or NULL: router.json says it.
 * Each model that was loaded or taken over is to be put back once.
 *
 * KVR_INVALID: *why becomes a sentence, without the directory's name, with the
 * cause, the values, and the remedy.
 */
kvr_rc_t kvr_model_load(kvr_model_t **out, const char *dir, const char *engine,
    kvr_model_t *const *known, size_t n, char *why);

/* Frees a model that nobody else uses. */
void kvr_model_put(kvr_model_t *m);

/* Of how many directives is this the model? */
uint32_t kvr_model_users(const kvr_model_t *m);

/* NULL: the model is refused, and kvr_model_refused() says why. */
const kvr_tokenizer_t *kvr_model_tokenizer(const kvr_model_t *m);

/* A sentence with the cause; "": the model is not refused. */
const char *kvr_model_refused(const kvr_model_t *m);

/* "vllm", "sglang" or "trtllm" */
const char *kvr_model_engine(const kvr_model_t *m);

/* SHA-256 of the engine's name and of all files, in hexadecimal digits. */
const char *kvr_model_digest(const kvr_model_t *m);

/* Bytes of memory; strings of router.json whose ids were compared. */
size_t kvr_model_bytes(const kvr_model_t *m);
uint32_t kvr_model_strings(const kvr_model_t *m);

/*
 * A file's text, terminated, and its length; NULL: there is none.  Of the
 * large members of router.json, which "router.json" is without, conversations
 * is a file by itself, "conversations", a line each; strings and special are
 * not kept.
 * tokenizer.json is not kept.  The text lives as long as the model.
 */
const char *kvr_model_text(const kvr_model_t *m, const char *name,
    size_t *len);

/*
 * The conversations of router.json have been rendered and compared: not to be
 * done again.  Only for the process that loads models.
 */
void kvr_model_prove(kvr_model_t *m);
bool kvr_model_proven(const kvr_model_t *m);


#endif /* KVR_MODEL_H_INCLUDED */
