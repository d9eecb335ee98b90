/*
 * Copyright (C) the nginx-kv-router authors
 *
 * router.json, which kv-model-dump writes, and what follows from it.
 */


#include "kvr_model_state.h"
#include "../token/kvr_encoder.h"

#include <stdio.h>
#include <stdlib.h>


#define KVR_MODEL_FORMAT  1


static kvr_rc_t kvr_model_router_file(kvr_model_t *m, const char *dir,
    kvr_model_json_t *j, uint32_t key, char *why);
static bool kvr_model_router_name(const char *name);
static kvr_rc_t kvr_model_router_keep(kvr_model_t *m, kvr_model_json_t *j,
    char *why);
static kvr_rc_t kvr_model_router_chats(kvr_model_t *m, kvr_model_json_t *j,
    char *why);
static bool kvr_model_router_large(const kvr_tape_t *tape, uint32_t key);
static kvr_rc_t kvr_model_compare_all(kvr_model_t *m,
    const kvr_model_json_t *j, kvr_encoder_t *encoder, const char *member,
    uint32_t flags);
static kvr_rc_t kvr_model_compare_one(kvr_model_t *m, const kvr_tape_t *tape,
    kvr_encoder_t *encoder, uint32_t pair, uint32_t flags, char *text,
    const char *where);


/*
 * Python code instead of a template or a tokenizer.json, in vLLM 0.32 and
 * SGLang 0.5.23.
 */

static const struct {
    const char  *type;
    const char  *code;
} kvr_model_types[] = {
    { "gpt_oss", "harmony" },
    { "deepseek_v32", "an encoder for DeepSeek V3.2" },
    { "deepseek_v4", "an encoder for DeepSeek V4" },
    { "deepseek_v41", "an encoder for DeepSeek V4.1" },
    { "kimi_k3", "an encoder for Kimi K3" },
    { "kimi_audio", "an encoder for Kimi Audio" },
    { "inkling", "an encoder for Inkling" },
    { "inkling_mm_model", "an encoder for Inkling" },
};


kvr_rc_t
kvr_model_router(kvr_model_t *m, const char *dir, kvr_model_json_t *j,
    char *why)
{
    char      engine[KVR_MODEL_ENGINE];
    uint32_t  files, key;
    uint64_t  n;

    if (!kvr_tape_u64(&j->tape,
                      kvr_tape_get(&j->tape, KVR_TAPE_ROOT, "format"), &n)
        || n != KVR_MODEL_FORMAT)
    {
        return kvr_model_why(why, "\"router.json\" is of another format than "
                             "%d; run this version's kv-model-dump",
                             KVR_MODEL_FORMAT);
    }

    if (!kvr_model_json_text(j, KVR_TAPE_ROOT, "engine", engine,
                             sizeof(engine)))
    {
        engine[0] = '\0';
    }

    if (m->engine[0] == '\0') {
        memcpy(m->engine, engine, sizeof(engine));

    } else if (strcmp(m->engine, engine) != 0) {
        return kvr_model_why(why, "\"engine=%s\" is given, and the directory "
                             "was made for \"%s\"; leave \"engine\" out, or "
                             "run kv-model-dump in that engine", m->engine,
                             engine);
    }

    files = kvr_tape_get(&j->tape, KVR_TAPE_ROOT, "files");

    if (kvr_tape_kind(&j->tape, files) != KVR_TAPE_OBJECT
        || kvr_tape_get(&j->tape, files, "tokenizer.json") == 0)
    {
        return kvr_model_why(why, "\"router.json\" names no "
                             "\"tokenizer.json\" in \"files\"; run "
                             "kv-model-dump again");
    }

    if (kvr_tape_u64(&j->tape,
                     kvr_tape_get(&j->tape,
                                  kvr_tape_get(&j->tape, KVR_TAPE_ROOT,
                                               "unicode"),
                                  "tokenizers"),
                     &n))
    {
        m->unicode = n;
    }

    for (key = kvr_tape_first(&j->tape, files);
         key;
         key = kvr_tape_next(&j->tape, files, key))
    {
        if (kvr_model_router_file(m, dir, j, key, why) != KVR_OK) {
            return KVR_INVALID;
        }
    }

    return kvr_model_router_keep(m, j, why);
}


/* Reads a file that router.json names, and holds it against its digest. */

static kvr_rc_t
kvr_model_router_file(kvr_model_t *m, const char *dir, kvr_model_json_t *j,
    uint32_t key, char *why)
{
    char              name[KVR_MODEL_NAME + 1], sha256[KVR_MODEL_SHA256];
    size_t            n;
    kvr_rc_t          rc;
    kvr_json_text_t   text;
    kvr_model_file_t  file;

    text = kvr_tape_text(&j->tape, key);
    n = kvr_json_decode(&text, name, KVR_MODEL_NAME);
    name[kvr_min(n, KVR_MODEL_NAME)] = '\0';

    if (n > KVR_MODEL_NAME || !kvr_model_router_name(name)
        || !kvr_model_json_text(j, key + 1, "sha256", sha256, sizeof(sha256)))
    {
        return kvr_model_why(why, "\"router.json\" has a file in \"files\" "
                             "with a name or a SHA-256 that can't be taken; "
                             "run kv-model-dump again");
    }

    rc = kvr_model_read(m, &file, dir, name,
                        strcmp(name, "tokenizer.json") == 0
                        ? KVR_MODEL_TOKENIZER_MAX : KVR_MODEL_TEMPLATE_MAX,
                        why);

    if (rc == KVR_DECLINED) {
        (void) kvr_model_why(why, "\"%s\" is missing, and \"router.json\" "
                             "names it; run kv-model-dump again", name);
    }

    if (rc != KVR_OK) {
        return KVR_INVALID;
    }

    if (strcmp(file.sha256, sha256) != 0) {
        (void) kvr_model_why(why, "\"%s\" has the SHA-256 %.12s..., and "
                             "\"router.json\" says %.12s...: the file was "
                             "changed or is incomplete; run kv-model-dump "
                             "again", name, file.sha256, sha256);
        kvr_model_file_free(&file);

        return KVR_INVALID;
    }

    if (kvr_model_keep(m, &file) == NULL) {
        (void) kvr_model_why(why, "\"router.json\" names more than %d files",
                             KVR_MODEL_FILES);
        kvr_model_file_free(&file);

        return KVR_INVALID;
    }

    return KVR_OK;
}


/* A path below the directory. */

static bool
kvr_model_router_name(const char *name)
{
    size_t  n;

    n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                     "0123456789._-/");

    return n > 0 && name[n] == '\0' && name[0] != '/' && name[0] != '.'
           && strstr(name, "/.") == NULL && strcmp(name, "router.json") != 0
           && strcmp(name, "conversations") != 0;
}


/*
 * Of router.json stays what is small, and of the large members the
 * conversations, as a file of their own.
 */

static kvr_rc_t
kvr_model_router_keep(kvr_model_t *m, kvr_model_json_t *j, char *why)
{
    size_t            len;
    uint32_t          key;
    kvr_json_text_t   text, name;
    kvr_model_file_t  file, *router;

    if (kvr_model_router_chats(m, j, why) != KVR_OK) {
        return KVR_INVALID;
    }

    memset(&file, 0, sizeof(file));

    /* as long as the text is, at most: each member stands in it */

    router = &m->files[0];
    file.data = malloc(router->len + 2);

    if (file.data == NULL) {
        return kvr_model_why(why, "there is no memory for \"router.json\"");
    }

    len = 0;

    for (key = kvr_tape_first(&j->tape, KVR_TAPE_ROOT);
         key;
         key = kvr_tape_next(&j->tape, KVR_TAPE_ROOT, key))
    {
        if (kvr_model_router_large(&j->tape, key)) {
            continue;
        }

        name = kvr_tape_raw(&j->tape, key);
        text = kvr_tape_raw(&j->tape, key + 1);

        file.data[len] = len ? ',' : '{';
        len++;

        memcpy(file.data + len, name.data, name.len);
        len += name.len;

        file.data[len++] = ':';

        memcpy(file.data + len, text.data, text.len);
        len += text.len;
    }

    file.data[len++] = '}';
    file.data[len] = '\0';

    /* the tape reads the old text until the model is made: see …_load() */

    file.stamp = router->stamp;
    file.len = len;
    memcpy(file.sha256, router->sha256, sizeof(file.sha256));

    m->files[0] = file;

    return KVR_OK;
}


/* The conversations, a line each. */

static kvr_rc_t
kvr_model_router_chats(kvr_model_t *m, kvr_model_json_t *j, char *why)
{
    size_t            i;
    uint32_t          v, chat;
    kvr_json_text_t   text;
    kvr_model_file_t  file;

    v = kvr_tape_get(&j->tape, KVR_TAPE_ROOT, "conversations");

    if (kvr_tape_kind(&j->tape, v) != KVR_TAPE_ARRAY) {
        return KVR_OK;
    }

    memset(&file, 0, sizeof(file));
    (void) snprintf(file.stamp.name, sizeof(file.stamp.name), "conversations");

    /* each has a comma or a bracket behind it, in whose place a line ends */

    text = kvr_tape_raw(&j->tape, v);
    file.data = malloc(text.len + 1);

    if (file.data == NULL) {
        return kvr_model_why(why, "there is no memory for the conversations "
                             "of \"router.json\"");
    }

    for (chat = kvr_tape_first(&j->tape, v);
         chat;
         chat = kvr_tape_next(&j->tape, v, chat))
    {
        text = kvr_tape_raw(&j->tape, chat);

        for (i = 0; i < text.len; i++) {
            file.data[file.len++] = text.data[i] == '\n' ? ' ' : text.data[i];
        }

        file.data[file.len++] = '\n';
    }

    file.data[file.len] = '\0';

    if (kvr_model_keep(m, &file) == NULL) {
        free(file.data);
        return kvr_model_why(why, "\"router.json\" names more than %d files",
                             KVR_MODEL_FILES - 2);
    }

    return KVR_OK;
}


static bool
kvr_model_router_large(const kvr_tape_t *tape, uint32_t key)
{
    kvr_json_text_t  name;

    name = kvr_tape_text(tape, key);

    return kvr_json_is(&name, "strings") || kvr_json_is(&name, "special")
           || kvr_json_is(&name, "conversations");
}


void
kvr_model_coded(kvr_model_t *m, const kvr_model_json_t *j)
{
    char      type[64];
    uint32_t  i;

    if (!kvr_model_json_text(j, KVR_TAPE_ROOT, "model_type", type,
                             sizeof(type)))
    {
        return;
    }

    for (i = 0; i < kvr_nelts(kvr_model_types); i++)
    {
        if (strcmp(type, kvr_model_types[i].type) == 0) {
            (void) kvr_model_why(m->refused, "engines encode models of the "
                                 "type \"%s\" by Python code, %s", type,
                                 kvr_model_types[i].code);
            return;
        }
    }
}


/* ---- the strings -------------------------------------------------------- */

void
kvr_model_compare(kvr_model_t *m, const kvr_model_json_t *j)
{
    kvr_encoder_t  *encoder;

    encoder = kvr_encoder_new(m->tokenizer, NULL, NULL);

    if (encoder == NULL) {
        (void) kvr_model_why(m->refused, "there is no memory to compare "
                             "strings");
        return;
    }

    if (kvr_model_compare_all(m, j, encoder, "strings", 0) == KVR_OK) {
        (void) kvr_model_compare_all(m, j, encoder, "special",
                                     KVR_ENCODER_ADD_SPECIAL);
    }

    kvr_encoder_free(encoder);
}


static kvr_rc_t
kvr_model_compare_all(kvr_model_t *m, const kvr_model_json_t *j,
    kvr_encoder_t *encoder, const char *member, uint32_t flags)
{
    kvr_rc_t           rc;
    char              *text, where[64];
    uint32_t           list, pair, i;
    const kvr_tape_t  *tape;

    tape = &j->tape;
    list = kvr_tape_get(tape, KVR_TAPE_ROOT, member);

    /* no string of it is longer than that */

    text = malloc(tape->text_len + 1);

    if (text == NULL) {
        return kvr_model_why(m->refused, "there is no memory to compare "
                             "strings");
    }

    rc = KVR_OK;
    i = 0;

    for (pair = kvr_tape_first(tape, list);
         pair && rc == KVR_OK;
         pair = kvr_tape_next(tape, list, pair))
    {
        (void) snprintf(where, sizeof(where), "text %u of \"%s\"", ++i,
                        member);

        rc = kvr_model_compare_one(m, tape, encoder, pair, flags, text, where);
    }

    free(text);

    return rc;
}


static kvr_rc_t
kvr_model_compare_one(kvr_model_t *m, const kvr_tape_t *tape,
    kvr_encoder_t *encoder, uint32_t pair, uint32_t flags, char *text,
    const char *where)
{
    size_t            len, n, i;
    uint32_t          string, ids;
    kvr_json_text_t   s;
    kvr_encoder_rc_t  rc;
    const uint32_t   *got, *want;

    string = kvr_tape_first(tape, pair);
    ids = string ? kvr_tape_next(tape, pair, string) : 0;

    if (kvr_tape_kind(tape, string) != KVR_TAPE_STRING
        || (kvr_tape_kind(tape, ids) != KVR_TAPE_IDS
            && (kvr_tape_kind(tape, ids) != KVR_TAPE_ARRAY
                || tape->entries[ids].len)))
    {
        return kvr_model_why(m->refused, "%s in \"router.json\" is no text "
                             "with token ids", where);
    }

    s = kvr_tape_text(tape, string);
    len = kvr_json_decode(&s, text, tape->text_len);

    rc = kvr_encoder_begin(encoder, text, len, flags);

    while (rc == KVR_ENCODER_AGAIN) {
        rc = kvr_encoder_step(encoder, 0);
    }

    if (rc != KVR_ENCODER_DONE) {
        return kvr_model_why(m->refused, "%s in \"router.json\" is not "
                             "tokenized: %s", where, kvr_encoder_error(rc));
    }

    got = kvr_encoder_ids(encoder, &n);
    want = kvr_tape_kind(tape, ids) == KVR_TAPE_IDS
           ? tape->ids + tape->entries[ids].first : NULL;

    for (i = 0; i < n && i < tape->entries[ids].len; i++) {
        if (got[i] != want[i]) {
            break;
        }
    }

    if (i < n || i < tape->entries[ids].len) {
        return kvr_model_why(m->refused, "%s in \"router.json\" has other "
                             "token ids here than in the engine: %zu instead "
                             "of %u, the first of them at %zu", where, n,
                             tape->entries[ids].len, i);
    }

    m->strings++;

    return KVR_OK;
}
