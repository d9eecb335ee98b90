/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Strings with escapes: what they spell.
 */


#include "kvr_decoder.h"
#include "kvr_utf8.h"


/* Decodes the escape at p; returns the number of UTF-8 bytes. */

static size_t
kvr_json_decode_escape(const char **pos, const char *end, char out[4])
{
    uint32_t     c, low;
    const char  *p;

    p = *pos + 1;

    switch (*p++) {
    case 'b':
        c = '\b';
        break;
    case 'f':
        c = '\f';
        break;
    case 'n':
        c = '\n';
        break;
    case 'r':
        c = '\r';
        break;
    case 't':
        c = '\t';
        break;
    case 'u':
        c = (uint32_t) kvr_hex_value(p, 4);
        p += 4;

        if (c >= 0xd800 && c < 0xdc00 && end - p >= 6 && p[0] == '\\'
            && p[1] == 'u')
        {
            low = (uint32_t) kvr_hex_value(p + 2, 4);

            if (low >= 0xdc00 && low < 0xe000) {
                c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
                p += 6;
            }
        }

        if (c >= 0xd800 && c < 0xe000) {
            c = 0xfffd;
        }

        break;
    default:                        /* ", \, / */
        c = p[-1];
    }

    *pos = p;

    return kvr_utf8_put(c, out);
}


size_t
kvr_json_decode(const kvr_json_text_t *s, char *out, size_t size)
{
    char         buf[4];
    size_t       i, n, len;
    const char  *p, *end;

    p = s->data;
    end = p + s->len;
    len = 0;

    while (p < end) {

        if (*p == '\\') {
            n = kvr_json_decode_escape(&p, end, buf);

        } else {
            buf[0] = *p++;
            n = 1;
        }

        for (i = 0; i < n; i++, len++) {
            if (len < size) {
                out[len] = buf[i];
            }
        }
    }

    return len;
}


bool
kvr_json_is(const kvr_json_text_t *s, const char *with)
{
    char    buf[64];
    size_t  len;

    len = strlen(with);

    if (!s->escaped) {
        return s->len == len && memcmp(s->data, with, len) == 0;
    }

    /* one character takes six bytes of text at most */

    if (len > sizeof(buf) || s->len > len * 6) {
        return false;
    }

    return kvr_json_decode(s, buf, sizeof(buf)) == len
           && memcmp(buf, with, len) == 0;
}


const char *
kvr_json_lone(const kvr_json_text_t *s)
{
    uint32_t     c;
    const char  *p, *end;

    p = s->data;
    end = p + s->len;

    while ((p = memchr(p, '\\', end - p)) != NULL) {

        c = (p[1] == 'u') ? (uint32_t) kvr_hex_value(p + 2, 4) : 0;

        if (c >= 0xd800 && c < 0xe000) {

            if (c >= 0xdc00 || end - p < 12 || p[6] != '\\' || p[7] != 'u') {
                return p;
            }

            c = (uint32_t) kvr_hex_value(p + 8, 4);

            if (c < 0xdc00 || c >= 0xe000) {
                return p;
            }

            p += 6;
        }

        p += (p[1] == 'u') ? 6 : 2;
    }

    return NULL;
}
