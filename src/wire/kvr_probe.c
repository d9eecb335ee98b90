/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Reads the answers of an engine to a probe.
 */


#include "kvr_probe.h"


static bool kvr_probe_card(kvr_json_t *j, kvr_json_text_t *id,
    kvr_json_text_t *owner);
static kvr_engine_kind_t kvr_probe_engine(const kvr_json_text_t *owner);
static bool kvr_probe_version_char(char c);
static bool kvr_probe_number(kvr_json_t *j, const char *const *path);


bool
kvr_probe_model(const char *text, size_t len, kvr_json_text_t *id,
    kvr_engine_kind_t *engine)
{
    bool             found;
    kvr_json_t       j;
    kvr_json_text_t  key, owner;

    id->data = NULL;
    owner.data = NULL;
    found = false;

    kvr_json_init(&j, text, len);

    if (!kvr_json_open(&j, '{')) {
        return false;
    }

    while (kvr_json_key(&j, &key)) {

        if (found || !kvr_json_is(&key, "data")
            || kvr_json_peek(&j) != '[')
        {
            (void) kvr_json_skip(&j);
            continue;
        }

        (void) kvr_json_open(&j, '[');

        while (kvr_json_next(&j)) {

            if (found) {
                (void) kvr_json_skip(&j);

            } else {
                found = kvr_probe_card(&j, id, &owner);
            }
        }
    }

    *engine = owner.data ? kvr_probe_engine(&owner) : KVR_ENGINE_UNKNOWN;

    return kvr_json_end(&j) && found && id->len <= KVR_PROBE_MODEL_MAX;
}


static kvr_engine_kind_t
kvr_probe_engine(const kvr_json_text_t *owner)
{
    uint32_t  i;

#define owner(id, name, owner, ...)  owner,

    static const char *const  owners[KVR_ENGINES] = {
        "", KVR_ENGINE_ROWS(owner)
    };

#undef owner

    for (i = KVR_ENGINE_VLLM; i < KVR_ENGINES; i++) {
        if (kvr_json_is(owner, owners[i])) {
            return i;
        }
    }

    return KVR_ENGINE_UNKNOWN;
}


static bool
kvr_probe_card(kvr_json_t *j, kvr_json_text_t *id, kvr_json_text_t *owner)
{
    kvr_json_text_t  key;

    if (!kvr_json_open(j, '{')) {
        return false;
    }

    while (kvr_json_key(j, &key)) {

        if (kvr_json_is(&key, "id")) {
            (void) kvr_json_string(j, id);

        } else if (kvr_json_is(&key, "owned_by") && kvr_json_peek(j) == '"') {
            (void) kvr_json_string(j, owner);

        } else {
            (void) kvr_json_skip(j);
        }
    }

    return id->data != NULL;
}


bool
kvr_probe_version(const char *text, size_t len, char *out, size_t size)
{
    size_t           i;
    kvr_json_t       j;
    kvr_json_text_t  key, version;

    version.data = NULL;
    kvr_json_init(&j, text, len);

    if (!kvr_json_open(&j, '{')) {
        return false;
    }

    while (kvr_json_key(&j, &key)) {

        if (kvr_json_is(&key, "version") && kvr_json_peek(&j) == '"') {
            (void) kvr_json_string(&j, &version);

        } else {
            (void) kvr_json_skip(&j);
        }
    }

    if (!kvr_json_end(&j) || version.data == NULL || version.len == 0
        || version.len >= size)
    {
        return false;
    }

    for (i = 0; i < version.len; i++) {
        if (!kvr_probe_version_char(version.data[i])) {
            return false;
        }
    }

    memcpy(out, version.data, version.len);
    out[version.len] = '\0';

    return true;
}


static bool
kvr_probe_version_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z')
           || (c >= 'A' && c <= 'Z')
           || c == '.' || c == '+' || c == '-' || c == '_';
}


bool
kvr_probe_windows(const char *text, size_t len)
{
    bool        found;
    kvr_json_t  j;

    static const char *const  path[] = {
        "internal_states", "memory_usage", "token_capacity_swa", NULL
    };

    kvr_json_init(&j, text, len);
    found = kvr_probe_number(&j, path);

    return kvr_json_end(&j) && found;
}


/*
 * Is there a number above 0 at the path of keys?  Of an array each element is
 * looked at; the reader limits how deep they are.
 */

static bool
kvr_probe_number(kvr_json_t *j, const char *const *path)
{
    char             c;
    bool             found;
    kvr_json_text_t  key;

    c = kvr_json_peek(j);
    found = false;

    if (c == '[') {
        (void) kvr_json_open(j, '[');

        while (kvr_json_next(j)) {
            found |= kvr_probe_number(j, path);
        }

        return found;
    }

    if (*path == NULL || c != '{') {
        (void) kvr_json_skip(j);
        return *path == NULL && c >= '1' && c <= '9';
    }

    (void) kvr_json_open(j, '{');

    while (kvr_json_key(j, &key)) {

        if (kvr_json_is(&key, *path)) {
            found |= kvr_probe_number(j, path + 1);

        } else {
            (void) kvr_json_skip(j);
        }
    }

    return found;
}


bool
kvr_probe_ids(const char *text, size_t len, const char *field)
{
    bool             list;
    size_t           n;
    kvr_json_t       j;
    kvr_json_text_t  key;

    n = 0;
    kvr_json_init(&j, text, len);
    list = kvr_json_peek(&j) == '[';

    if (list && (!kvr_json_open(&j, '[') || !kvr_json_next(&j))) {
        return false;
    }

    if (!kvr_json_open(&j, '{')) {
        return false;
    }

    while (kvr_json_key(&j, &key)) {

        if (kvr_json_is(&key, field)) {
            (void) kvr_json_ids(&j, NULL, 0, &n);

        } else {
            (void) kvr_json_skip(&j);
        }
    }

    while (list && kvr_json_next(&j)) {
        (void) kvr_json_skip(&j);
    }

    return kvr_json_end(&j) && n > 0;
}
