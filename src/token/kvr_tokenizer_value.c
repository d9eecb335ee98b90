/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Values of a tokenizer.json, which was checked as a whole: JSON, UTF-8.
 */


#include "kvr_tokenizer_state.h"

#include <stdarg.h>
#include <stdio.h>


bool
kvr_token_refuse(kvr_token_load_t *l, const char *format, ...)
{
    va_list  args;

    va_start(args, format);
    (void) vsnprintf(l->why, l->why_len, format, args);
    va_end(args);

    return false;
}


bool
kvr_token_no_memory(kvr_token_load_t *l)
{
    return kvr_token_refuse(l, "no memory");
}


/* The value at the cursor, which is skipped. */

static kvr_token_value_t
kvr_token_value(kvr_json_t *j)
{
    kvr_token_value_t  v;

    (void) kvr_json_peek(j);

    v.data = j->pos;
    v.len = kvr_json_skip(j) ? (size_t) (j->pos - v.data) : 0;

    return v;
}


/* Of a member that comes twice the last one counts. */

void
kvr_token_members(kvr_token_value_t object, const char *const *names,
    kvr_token_value_t *values, uint32_t n)
{
    uint32_t           i;
    kvr_json_t         j;
    kvr_json_text_t    key;
    kvr_token_value_t  v;

    memset(values, 0, n * sizeof(kvr_token_value_t));

    if (object.data == NULL || *object.data != '{') {
        return;
    }

    kvr_json_init(&j, object.data, object.len);

    if (kvr_json_open(&j, '{')) {
        while (kvr_json_key(&j, &key)) {
            v = kvr_token_value(&j);

            for (i = 0; i < n; i++) {
                if (kvr_json_is(&key, names[i])) {
                    values[i] = v;
                }
            }
        }
    }
}


kvr_token_value_t
kvr_token_get(kvr_token_value_t object, const char *name)
{
    kvr_token_value_t  found;

    kvr_token_members(object, &name, &found, 1);

    return found;
}


bool
kvr_token_open(kvr_json_t *j, kvr_token_value_t array)
{
    if (array.data == NULL || *array.data != '[') {
        return false;
    }

    kvr_json_init(j, array.data, array.len);

    return kvr_json_open(j, '[');
}


bool
kvr_token_next(kvr_json_t *j, kvr_token_value_t *element)
{
    if (!kvr_json_next(j)) {
        return false;
    }

    *element = kvr_token_value(j);

    return true;
}


bool
kvr_token_is(kvr_token_value_t v, const char *text)
{
    kvr_json_t       j;
    kvr_json_text_t  s;

    if (v.data == NULL || *v.data != '"') {
        return false;
    }

    kvr_json_init(&j, v.data, v.len);

    return kvr_json_string(&j, &s) && kvr_json_is(&s, text);
}


bool
kvr_token_given(kvr_token_value_t v)
{
    return v.data && *v.data != 'n';
}


bool
kvr_token_yes(kvr_token_value_t v, bool otherwise)
{
    if (v.data == NULL || (*v.data != 't' && *v.data != 'f')) {
        return otherwise;
    }

    return *v.data == 't';
}


bool
kvr_token_text(kvr_token_value_t v, kvr_bytes_t *out)
{
    kvr_json_t       j;
    kvr_json_text_t  s;

    if (v.data == NULL || *v.data != '"') {
        return false;
    }

    kvr_json_init(&j, v.data, v.len);

    if (!kvr_json_string(&j, &s) || !kvr_bytes_room(out, s.len + 1)) {
        return false;
    }

    out->n += kvr_json_decode(&s, out->data + out->n, s.len);

    return true;
}


bool
kvr_token_u32(kvr_token_value_t v, uint32_t *out)
{
    uint64_t  value;

    if (v.data == NULL || !kvr_json_digits(v.data, v.len, &value)
        || value >= KVR_TOKEN_NONE)
    {
        return false;
    }

    *out = (uint32_t) value;

    return true;
}


uint32_t
kvr_token_id(const kvr_token_names_t *names, const char *text, size_t len)
{
    uint32_t                 k;
    const kvr_token_name_t  *name;

    for (k = XXH3_64bits(text, len) & names->mask;
         names->slots[k];
         k = (k + 1) & names->mask)
    {
        name = &names->names[names->slots[k] - 1];

        if (name->len == len
            && memcmp(names->text.data + name->at, text, len) == 0)
        {
            return name->id;
        }
    }

    return KVR_TOKEN_NONE;
}
