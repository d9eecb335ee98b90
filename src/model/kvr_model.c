/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_model_state.h"

#include <stdio.h>
#include <stdlib.h>


static kvr_model_t *kvr_model_known(const char *dir, const char *engine,
    kvr_model_t *const *known, size_t n);
static kvr_rc_t kvr_model_fill(kvr_model_t *m, const char *dir,
    kvr_model_json_t *j, char *why);
static kvr_rc_t kvr_model_plain(kvr_model_t *m, const char *dir, char *why);
static kvr_rc_t kvr_model_digest_all(kvr_model_t *m);
static void kvr_model_build(kvr_model_t *m, const kvr_model_json_t *j);
static kvr_model_file_t *kvr_model_file(const kvr_model_t *m,
    const char *name);
static void kvr_model_free(kvr_model_t *m);


/* Of a directory of Hugging Face; the first one must be there. */

static const char *const  kvr_model_plain_names[] = {
    "tokenizer.json", "tokenizer_config.json", "config.json",
    "special_tokens_map.json", "chat_template.jinja", "chat_template.json"
};


kvr_rc_t
kvr_model_load(kvr_model_t **out, const char *dir, const char *engine,
    kvr_model_t *const *known, size_t n, char *why)
{
    char             *router;
    size_t            i;
    kvr_rc_t          rc;
    kvr_model_t      *m;
    kvr_model_json_t  j;

    if (kvr_model_dir(dir, why) != KVR_OK) {
        return KVR_INVALID;
    }

    m = kvr_model_known(dir, engine, known, n);

    if (m) {
        m->users++;
        *out = m;

        return KVR_OK;
    }

    m = calloc(1, sizeof(kvr_model_t));

    if (m == NULL) {
        return kvr_model_why(why, "there is no memory");
    }

    m->users = 1;
    m->unicode = 16;

    if (engine) {
        (void) snprintf(m->engine, sizeof(m->engine), "%s", engine);
    }

    memset(&j, 0, sizeof(j));
    router = NULL;

    rc = kvr_model_read(m, &m->files[0], dir, "router.json",
                        KVR_MODEL_ROUTER_MAX, why);

    if (rc == KVR_OK) {
        m->nfiles = 1;
        router = m->files[0].data;
        rc = kvr_model_json_scan(&j, "router.json", router, m->files[0].len,
                                 why);
        if (rc == KVR_OK) {
            rc = kvr_model_fill(m, dir, &j, why);
        }

    } else if (rc == KVR_DECLINED) {
        rc = kvr_model_plain(m, dir, why);
    }

    if (rc == KVR_OK) {
        rc = kvr_model_digest_all(m);
    }

    for (i = 0; i < n && rc == KVR_OK; i++) {
        if (strcmp(known[i]->digest, m->digest) == 0) {
            /* the same files, elsewhere or written again */

            memcpy(known[i]->stamps, m->stamps, sizeof(m->stamps));
            known[i]->nstamps = m->nstamps;
            known[i]->users++;
            *out = known[i];

            break;
        }
    }

    if (rc == KVR_OK && i == n) {
        kvr_model_build(m, j.entries ? &j : NULL);
        *out = m;
        m = NULL;
    }

    kvr_model_json_free(&j);

    if (router && (m == NULL || m->files[0].data != router)) {
        free(router);
    }

    if (m) {
        kvr_model_free(m);
    }

    return rc;
}


/* The model of a directory in which nothing changed. */

static kvr_model_t *
kvr_model_known(const char *dir, const char *engine,
    kvr_model_t *const *known, size_t n)
{
    size_t              i;
    uint32_t            k;
    const kvr_model_t  *m;

    for (i = 0; i < n; i++) {
        m = known[i];

        if (engine && strcmp(m->engine, engine) != 0) {
            continue;
        }

        for (k = 0; k < m->nstamps; k++) {
            if (!kvr_model_file_same(&m->stamps[k], dir)) {
                break;
            }
        }

        if (k == m->nstamps) {
            return known[i];
        }
    }

    return NULL;
}


static kvr_rc_t
kvr_model_fill(kvr_model_t *m, const char *dir, kvr_model_json_t *j, char *why)
{
    if (kvr_model_router(m, dir, j, why) != KVR_OK) {
        return KVR_INVALID;
    }

    if (m->engine[0] == '\0') {
        return kvr_model_why(why, "\"router.json\" names no engine; say "
                             "\"engine=\"");
    }

    kvr_model_coded(m, j);

    return KVR_OK;
}


/* The files of a directory of Hugging Face. */

static kvr_rc_t
kvr_model_plain(kvr_model_t *m, const char *dir, char *why)
{
    size_t             i;
    kvr_rc_t           rc;
    kvr_model_file_t   file, *config;
    kvr_model_json_t   j;

    if (m->engine[0] == '\0') {
        return kvr_model_why(why, "it has no \"router.json\", which "
                             "kv-model-dump writes; for a directory of "
                             "Hugging Face say \"engine=\"");
    }

    for (i = 0; i < sizeof(kvr_model_plain_names) / sizeof(char *); i++) {

        rc = kvr_model_read(m, &file, dir, kvr_model_plain_names[i],
                            i == 0 ? KVR_MODEL_TOKENIZER_MAX
                            : strstr(kvr_model_plain_names[i], "onfig")
                              ? KVR_MODEL_ROUTER_MAX : KVR_MODEL_TEMPLATE_MAX,
                            why);

        if (rc == KVR_INVALID) {
            return rc;
        }

        if (rc == KVR_OK) {
            (void) kvr_model_keep(m, &file);

        } else if (i == 0) {
            return kvr_model_why(why, "it has neither \"router.json\" nor "
                                 "\"tokenizer.json\"; run kv-model-dump, or "
                                 "name the directory of a model");
        }
    }

    /* engines prefer mistral_common where its file is */

    rc = kvr_model_read(m, &file, dir, "tekken.json", KVR_MODEL_TOKENIZER_MAX,
                        why);

    if (rc == KVR_OK) {
        kvr_model_file_free(&file);
        (void) kvr_model_why(m->refused, "engines encode models with a "
                             "\"tekken.json\" by Python code, mistral_common");
    }

    if (rc == KVR_INVALID) {
        return rc;
    }

    config = kvr_model_file(m, "config.json");

    if (config == NULL) {
        return KVR_OK;
    }

    rc = kvr_model_json_scan(&j, "config.json", config->data, config->len,
                             why);
    if (rc == KVR_OK) {
        kvr_model_coded(m, &j);
        kvr_model_json_free(&j);
    }

    return rc;
}


static kvr_rc_t
kvr_model_digest_all(kvr_model_t *m)
{
    char      text[KVR_MODEL_ENGINE + 2
                   + KVR_MODEL_FILES
                     * (KVR_MODEL_NAME + KVR_MODEL_SHA256 + 2)];
    size_t    len;
    uint32_t  i;

    len = snprintf(text, sizeof(text), "%s\n", m->engine);

    for (i = 0; i < m->nfiles; i++) {
        len += snprintf(text + len, sizeof(text) - len, "%s %s\n",
                        m->files[i].stamp.name, m->files[i].sha256);
    }

    return kvr_model_sha256(text, len, m->digest);
}


/* Makes the tokenizer; its file is then not needed any more. */

static void
kvr_model_build(kvr_model_t *m, const kvr_model_json_t *j)
{
    char               why[KVR_MODEL_WHY];
    kvr_model_file_t  *file;

    file = kvr_model_file(m, "tokenizer.json");

    if (m->refused[0] == '\0') {
        m->tokenizer = kvr_tokenizer_load(file->data, file->len,
                                          m->unicode >= 16 ? KVR_UNICODE_16
                                                           : KVR_UNICODE_14,
                                          why, sizeof(why));
        if (m->tokenizer == NULL) {
            (void) kvr_model_why(m->refused, "\"tokenizer.json\": %.*s",
                                 KVR_MODEL_WHY - 32, why);

        } else if (j) {
            kvr_model_compare(m, j);
        }
    }

    if (m->refused[0] && m->tokenizer) {
        kvr_tokenizer_free(m->tokenizer);
        m->tokenizer = NULL;
    }

    kvr_model_file_free(file);
}


static kvr_model_file_t *
kvr_model_file(const kvr_model_t *m, const char *name)
{
    uint32_t  i;

    for (i = 0; i < m->nfiles; i++) {
        if (strcmp(m->files[i].stamp.name, name) == 0 && m->files[i].data) {
            return (kvr_model_file_t *) &m->files[i];
        }
    }

    return NULL;
}


void
kvr_model_put(kvr_model_t *m)
{
    if (m && --m->users == 0) {
        kvr_model_free(m);
    }
}


static void
kvr_model_free(kvr_model_t *m)
{
    uint32_t  i;

    for (i = 0; i < m->nfiles; i++) {
        kvr_model_file_free(&m->files[i]);
    }

    if (m->tokenizer) {
        kvr_tokenizer_free(m->tokenizer);
    }

    free(m);
}


/* ---- what is known of it ------------------------------------------------ */

uint32_t
kvr_model_users(const kvr_model_t *m)
{
    return m->users;
}


const kvr_tokenizer_t *
kvr_model_tokenizer(const kvr_model_t *m)
{
    return m->tokenizer;
}


const char *
kvr_model_refused(const kvr_model_t *m)
{
    return m->refused;
}


const char *
kvr_model_engine(const kvr_model_t *m)
{
    return m->engine;
}


const char *
kvr_model_digest(const kvr_model_t *m)
{
    return m->digest;
}


size_t
kvr_model_bytes(const kvr_model_t *m)
{
    size_t    n;
    uint32_t  i;

    n = sizeof(kvr_model_t);

    for (i = 0; i < m->nfiles; i++) {
        n += m->files[i].len;
    }

    return m->tokenizer ? n + kvr_tokenizer_bytes(m->tokenizer) : n;
}


uint32_t
kvr_model_strings(const kvr_model_t *m)
{
    return m->strings;
}


const char *
kvr_model_text(const kvr_model_t *m, const char *name, size_t *len)
{
    const kvr_model_file_t  *file;

    file = kvr_model_file(m, name);

    if (file == NULL) {
        return NULL;
    }

    *len = file->len;

    return file->data;
}


void
kvr_model_prove(kvr_model_t *m)
{
    m->proven = true;
}


bool
kvr_model_proven(const kvr_model_t *m)
{
    return m->proven;
}
