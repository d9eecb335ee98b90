/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_text.h"
#include "kvr_unicode.h"

#include <stdlib.h>


#define KVR_TEXT_START   4096


void
kvr_text_init(kvr_text_t *t, size_t bound)
{
    memset(t, 0, sizeof(kvr_text_t));

    t->bound = bound;
}


void
kvr_text_free(kvr_text_t *t)
{
    free(t->data);
    kvr_text_init(t, t->bound);
}


void
kvr_text_reset(kvr_text_t *t, size_t bound)
{
    if (t->cap > KVR_TEXT_KEPT) {
        kvr_text_free(t);
    }

    t->len = 0;
    t->bound = bound;
}


/* Makes room for n more bytes. */

static kvr_rc_t
kvr_text_room(kvr_text_t *t, size_t n)
{
    char    *data;
    size_t   cap;

    if (t->len > t->bound || n > t->bound - t->len) {
        return KVR_FULL;
    }

    if (n <= t->cap - t->len) {
        return KVR_OK;
    }

    cap = kvr_max(kvr_max(2 * t->cap, t->len + n), KVR_TEXT_START);

    data = realloc(t->data, cap);
    if (data == NULL) {
        return KVR_ERROR;
    }

    t->data = data;
    t->cap = cap;

    return KVR_OK;
}


kvr_rc_t
kvr_text_append(kvr_text_t *t, const char *data, size_t len)
{
    kvr_rc_t  rc;

    rc = kvr_text_room(t, len);

    if (rc == KVR_OK && len) {
        memcpy(t->data + t->len, data, len);
        t->len += len;
    }

    return rc;
}


void
kvr_text_cut(kvr_text_t *t, size_t len)
{
    t->len = kvr_min(t->len, len);
}


/* ---- JSON --------------------------------------------------------------- */

/* The letter behind the backslash; 0: none. */

static int
kvr_text_letter(unsigned char c)
{
    switch (c) {

    case '"':
    case '\\':
        return c;

    case '\n':
        return 'n';

    case '\r':
        return 'r';

    case '\t':
        return 't';

    case '\b':
        return 'b';

    case '\f':
        return 'f';
    }

    return 0;
}


static char *
kvr_text_unit(char *out, uint32_t unit)
{
    int                 shift;
    static const char   hex[] = "0123456789abcdef";

    *out++ = '\\';
    *out++ = 'u';

    for (shift = 12; shift >= 0; shift -= 4) {
        *out++ = hex[(unit >> shift) & 15];
    }

    return out;
}


kvr_rc_t
kvr_text_append_json(kvr_text_t *t, const char *data, size_t len, bool ascii)
{
    int                   letter;
    char                 *out;
    uint32_t              c, n;
    kvr_rc_t              rc;
    const unsigned char  *s, *run, *end;

    s = (const unsigned char *) data;
    end = s + len;

    /* most strings are copied as they are */

    for (run = s; run < end && *run >= 0x20 && *run != '"' && *run != '\\'
                  && (*run < 0x7f || !ascii); run++)
    {
        /* void */
    }

    /* at most 6 bytes for a byte: \u001f; a pair is 12 for 4 */

    rc = kvr_text_room(t, (size_t) (run - s) + 2);

    if (rc == KVR_OK && run < end) {
        rc = kvr_text_room(t, (size_t) (run - s)
                              + 6 * (size_t) (end - run) + 2);
    }

    if (rc != KVR_OK) {
        return rc;
    }

    out = t->data + t->len;
    *out++ = '"';

    if (run > s) {
        memcpy(out, s, (size_t) (run - s));
        out += run - s;
    }

    for (s = run; s < end; s += n) {
        n = 1;
        letter = kvr_text_letter(*s);

        if (letter) {
            *out++ = '\\';
            *out++ = (char) letter;

        } else if (*s < 0x20 || (ascii && *s > 0x7e)) {
            c = kvr_unicode_get((const char *) s, &n);

            if (c > 0xffff) {
                c -= 0x10000;
                out = kvr_text_unit(out, 0xd800 + (c >> 10));
                out = kvr_text_unit(out, 0xdc00 + (c & 0x3ff));

            } else {
                out = kvr_text_unit(out, c);
            }

        } else {
            *out++ = (char) *s;
        }
    }

    *out++ = '"';
    t->len = (size_t) (out - t->data);

    return KVR_OK;
}
