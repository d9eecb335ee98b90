/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_decoder.h"


bool
kvr_worker_id_valid(const char *id, size_t len)
{
    char    c;
    size_t  i;

    if (len == 0 || len > KVR_WORKER_ID_MAX) {
        return false;
    }

    for (i = 0; i < len; i++) {
        c = id[i];

        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
            || (c >= '0' && c <= '9')
            || c == '.' || c == '_' || c == ':' || c == '-')
        {
            continue;
        }

        return false;
    }

    return true;
}


bool
kvr_word_at(const char *const *words, const char *text, size_t len,
    uint32_t *at)
{
    uint32_t  i;

    for (i = 0; words[i] != NULL; i++) {
        if (strlen(words[i]) == len && memcmp(words[i], text, len) == 0) {
            *at = i;
            return true;
        }
    }

    return false;
}


bool
kvr_u64_parse(const char *text, size_t len, uint64_t *value)
{
    size_t    i;
    uint64_t  n;

    n = 0;

    for (i = 0; i < len; i++) {

        if (text[i] < '0' || text[i] > '9'
            || __builtin_mul_overflow(n, 10, &n)
            || __builtin_add_overflow(n, (uint64_t) (text[i] - '0'), &n))
        {
            return false;
        }
    }

    *value = n;

    return len != 0;
}


bool
kvr_hash_parse(const char *text, size_t len, bool hex, uint64_t *hash)
{
    if (kvr_u64_parse(text, len, hash)) {
        return true;
    }

    if (len > 1 && text[0] == '-') {
        if (!kvr_u64_parse(text + 1, len - 1, hash) || *hash > 1ull << 63) {
            return false;
        }

        *hash = -*hash;
        return true;
    }

    if (!hex || len == 0 || kvr_hex_digits(text, len) != len) {
        return false;
    }

    text += len - kvr_min(len, 16);
    *hash = kvr_hex_value(text, kvr_min(len, 16));

    return true;
}


size_t
kvr_hex_digits(const char *text, size_t len)
{
    char    c;
    size_t  i;

    for (i = 0; i < len; i++) {
        c = text[i];

        if ((c < '0' || c > '9') && (c < 'a' || c > 'f')
            && (c < 'A' || c > 'F'))
        {
            break;
        }
    }

    return i;
}


uint64_t
kvr_hex_value(const char *text, size_t len)
{
    char      c;
    size_t    i;
    uint64_t  value;

    value = 0;

    for (i = 0; i < len; i++) {
        c = text[i];
        value <<= 4;

        if (c <= '9') {
            value |= (uint64_t) (c - '0');

        } else {
            value |= (uint64_t) ((c | 0x20) - 'a' + 10);
        }
    }

    return value;
}
