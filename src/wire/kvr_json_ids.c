/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Arrays of token ids: nearly all of the bytes of a prompt.
 */


#include "kvr_json_ways.h"
#include "kvr_json_word.h"


bool
kvr_json_ids(kvr_json_t *j, uint32_t *out, size_t cap, size_t *n)
{
    size_t       count;
    uint64_t     value;
    const char  *p, *id;

    if (!kvr_json_open(j, '[')) {
        return false;
    }

    count = 0;

    if (!kvr_json_next(j)) {
        *n = 0;
        return true;
    }

    for ( ;; ) {

        j->pos = j->way->ids(j->pos, j->end, out, cap, &count);

        /* read any one id, and look at the character behind it */

        (void) kvr_json_peek(j);

        id = j->pos;
        p = id;

        while (p < j->end && kvr_json_is_digit(*p)) {
            p++;
        }

        if (p == id && p == j->end) {
            return kvr_json_fail(j, p, "unexpected end");
        }

        if (!kvr_json_digits(id, p - id, &value) || value > UINT32_MAX
            || (p < j->end && (*p == '.' || *p == 'e' || *p == 'E')))
        {
            return kvr_json_fail(j, id, "a token id 0..4294967295 was "
                                        "expected");
        }

        if (count < cap) {
            out[count] = (uint32_t) value;
        }

        count++;
        j->pos = p;

        if (!kvr_json_next(j)) {
            break;
        }
    }

    if (j->error) {
        return false;
    }

    *n = count;

    return true;
}
