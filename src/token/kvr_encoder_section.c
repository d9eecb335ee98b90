/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Sections of a text, between two added tokens: normalized, cut at the added
 * tokens of normalized text, repaired for PCRE2.
 */


#include "kvr_encoder_state.h"


/* Nothing is copied as long as nothing changes. */

void
kvr_encoder_normalize(kvr_encoder_t *e)
{
    size_t       len, at, end;
    kvr_rc_t     rc;
    const char  *text;

    text = e->text + e->at;
    len = e->a - e->at;
    at = e->raw_at - e->at;

    if (e->t->normalizer.n == 0) {
        e->raw_at = e->a;

    } else {
        end = kvr_normalizer_part(&e->t->normalizer, text, len, at,
                                  KVR_ENCODER_PART);
        rc = kvr_normalizer_apply(&e->t->normalizer, &e->work, e->matcher,
                                  text, at, end, &e->normalized);

        if (rc == KVR_ERROR) {
            kvr_encoder_fail(e, KVR_ENCODER_REGEX);
            return;
        }

        if (rc == KVR_DECLINED && e->copied) {
            kvr_bytes_add(&e->normalized, text + at, end - at);
        }

        if (rc == KVR_OK && !e->copied) {
            e->copied = true;

            if (at) {
                /* the parts before have not changed: put them in front */
                size_t  n = e->normalized.n;

                if (kvr_bytes_room(&e->normalized, at)) {
                    memmove(e->normalized.data + at, e->normalized.data, n);
                    memcpy(e->normalized.data, text, at);
                    e->normalized.n = n + at;
                }
            }
        }

        if (e->normalized.failed) {
            kvr_encoder_fail(e, KVR_ENCODER_MEMORY);
            return;
        }

        e->raw_at = e->at + end;
    }

    if (e->raw_at < e->a) {
        return;
    }

    e->section = e->copied ? e->normalized.data : text;
    e->section_len = e->copied ? e->normalized.n : len;
    e->section_at = 0;
    e->section_from = 0;
    e->state = KVR_ENCODER_SECTION;
}


void
kvr_encoder_section(kvr_encoder_t *e)
{
    size_t              upto, a, b;
    int32_t             token;
    const kvr_added_t  *added;

    if (e->section_at >= e->section_len) {
        e->state = KVR_ENCODER_TOKEN;
        return;
    }

    upto = kvr_min(e->section_from + KVR_ENCODER_PART, e->section_len);

    token = kvr_added_find(&e->t->normalized, e->section, e->section_len,
                           e->section_from, upto, &a, &b);

    if (token == -1) {
        e->section_from = upto;

        if (upto < e->section_len) {
            return;
        }

        a = e->section_len;
        b = e->section_len;

    } else {
        added = &e->t->added[token];
        e->section_from = b;

        if (!kvr_added_accept(added, e->matcher, e->t->age, e->section,
                              e->section_len, e->section_at, &a, &b))
        {
            return;
        }
    }

    e->inner = token;
    e->inner_b = b;
    e->part = e->section + e->section_at;
    e->part_len = a > e->section_at ? a - e->section_at : 0;
    e->part_repaired = e->part;
    e->part_taken = false;
    e->repair_at = 0;
    e->state = KVR_ENCODER_REPAIR;
}


void
kvr_encoder_repair(kvr_encoder_t *e)
{
    size_t  upto, at;

    if (e->part_len == 0 || e->t->splitter.n == 0) {
        e->split.depth = 0;
        e->state = KVR_ENCODER_SPLIT;
        return;
    }

    upto = e->repair_at + KVR_ENCODER_PART;

    if (upto >= e->part_len) {
        upto = e->part_len;

    } else {
        while (((uint8_t) e->part[upto] & 0xc0) == 0x80) {
            upto++;
        }
    }

    if (e->part_repaired != e->part) {
        kvr_unicode_repair(e->t->age, e->repaired.data, e->repair_at, upto);

    } else {
        at = kvr_unicode_broken(e->t->age, e->part, e->repair_at, upto);

        if (at < upto) {
            e->repaired.n = 0;
            kvr_bytes_add(&e->repaired, e->part, e->part_len);

            if (e->repaired.failed) {
                kvr_encoder_fail(e, KVR_ENCODER_MEMORY);
                return;
            }

            e->part_repaired = e->repaired.data;
            kvr_unicode_repair(e->t->age, e->repaired.data, at, upto);
        }
    }

    e->repair_at = upto;

    if (upto < e->part_len) {
        return;
    }

    e->state = KVR_ENCODER_SPLIT;

    if (!kvr_split_begin(&e->split, &e->t->splitter, e->part,
                         e->part_repaired, e->part_len,
                         e->at == 0 && e->section_at == 0))
    {
        kvr_encoder_fail(e, KVR_ENCODER_MEMORY);
    }
}
