/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Strings with escapes: what they spell.
 */


#include "kvr_json.h"
#include "kvr_json_word.h"


static uint32_t
kvr_json_hex4(const char *p)
{
    int       i;
    uint32_t  c;

    c = 0;

    for (i = 0; i < 4; i++) {
        c = c * 16 + (kvr_json_is_digit(p[i]) ? p[i] - '0'
                                              : (p[i] | 0x20) - 'a' + 10);
    }

    return c;
}


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
        c = kvr_json_hex4(p);
        p += 4;

        if (c >= 0xd800 && c < 0xdc00 && end - p >= 6 && p[0] == '\\'
            && p[1] == 'u')
        {
            low = kvr_json_hex4(p + 2);

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

    if (c < 0x80) {
        out[0] = (char) c;
        return 1;
    }

    if (c < 0x800) {
        out[0] = (char) (0xc0 | (c >> 6));
        out[1] = (char) (0x80 | (c & 0x3f));
        return 2;
    }

    if (c < 0x10000) {
        out[0] = (char) (0xe0 | (c >> 12));
        out[1] = (char) (0x80 | ((c >> 6) & 0x3f));
        out[2] = (char) (0x80 | (c & 0x3f));
        return 3;
    }

    out[0] = (char) (0xf0 | (c >> 18));
    out[1] = (char) (0x80 | ((c >> 12) & 0x3f));
    out[2] = (char) (0x80 | ((c >> 6) & 0x3f));
    out[3] = (char) (0x80 | (c & 0x3f));

    return 4;
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

        c = (p[1] == 'u') ? kvr_json_hex4(p + 2) : 0;

        if (c >= 0xd800 && c < 0xe000) {

            if (c >= 0xdc00 || end - p < 12 || p[6] != '\\' || p[7] != 'u') {
                return p;
            }

            c = kvr_json_hex4(p + 8);

            if (c < 0xdc00 || c >= 0xe000) {
                return p;
            }

            p += 6;
        }

        p += (p[1] == 'u') ? 6 : 2;
    }

    return NULL;
}
