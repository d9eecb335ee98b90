/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The parts of a model directory: files, and JSON.
 */


#include "kvr_model_state.h"

#include <stdio.h>
#include <stdlib.h>


kvr_rc_t
kvr_model_read(kvr_model_t *m, kvr_model_file_t *file, const char *dir,
    const char *name, size_t bound, char *why)
{
    kvr_rc_t  rc;

    if (m->nstamps == KVR_MODEL_FILES) {
        return kvr_model_why(why, "it has more than %d files",
                             KVR_MODEL_FILES);
    }

    rc = kvr_model_file_read(file, dir, name, bound, why);

    if (rc != KVR_INVALID) {
        m->stamps[m->nstamps++] = file->stamp;
    }

    return rc;
}


kvr_model_file_t *
kvr_model_keep(kvr_model_t *m, const kvr_model_file_t *file)
{
    if (m->nfiles == KVR_MODEL_FILES) {
        return NULL;
    }

    m->files[m->nfiles] = *file;

    return &m->files[m->nfiles++];
}


kvr_rc_t
kvr_model_json_scan(kvr_model_json_t *j, const char *name, const char *text,
    size_t len, char *why)
{
    uint32_t  cap;

    cap = len / 2 + 3;

    /* the system gives no memory for what is not written */

    j->entries = malloc(cap * sizeof(kvr_tape_entry_t));
    j->ids = malloc(cap * sizeof(uint32_t));

    if (j->entries == NULL || j->ids == NULL) {
        kvr_model_json_free(j);
        return kvr_model_why(why, "there is no memory to read \"%s\"", name);
    }

    kvr_tape_init(&j->tape, j->entries, cap, j->ids, cap);

    if (kvr_tape_scan(&j->tape, text, len) != KVR_OK
        || kvr_tape_kind(&j->tape, KVR_TAPE_ROOT) != KVR_TAPE_OBJECT)
    {
        (void) kvr_model_why(why, "\"%s\" is no JSON object: %s at byte %zu; "
                             "it may be incomplete: run kv-model-dump again",
                             name,
                             j->tape.error ? j->tape.error : "another value",
                             j->tape.error ? j->tape.error_at : 0);
        kvr_model_json_free(j);

        return KVR_INVALID;
    }

    return KVR_OK;
}


void
kvr_model_json_free(kvr_model_json_t *j)
{
    free(j->entries);
    free(j->ids);

    j->entries = NULL;
    j->ids = NULL;
}


bool
kvr_model_json_text(const kvr_model_json_t *j, uint32_t object,
    const char *name, char *out, size_t size)
{
    size_t           n;
    uint32_t         v;
    kvr_json_text_t  text;

    v = kvr_tape_get(&j->tape, object, name);

    if (kvr_tape_kind(&j->tape, v) != KVR_TAPE_STRING) {
        return false;
    }

    text = kvr_tape_text(&j->tape, v);
    n = kvr_json_decode(&text, out, size - 1);

    if (n > size - 1) {
        return false;
    }

    out[n] = '\0';

    return strlen(out) == n;
}
