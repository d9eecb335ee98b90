/*
 * Copyright (C) the nginx-kv-router authors
 */


#define _GNU_SOURCE                     /* memmem() */

#include "kvr_string.h"
#include "kvr_unicode.h"


#define KVR_STRING_HIGH   0x8080808080808080ull


/* Eight bytes at once. */

static inline uint64_t
kvr_string_word(const char *s)
{
    uint64_t  word;

    memcpy(&word, s, sizeof(uint64_t));

    return word;
}


static inline bool
kvr_string_starts(unsigned char c)
{
    return (c & 0xc0) != 0x80;
}


size_t
kvr_string_chars(const char *s, size_t len)
{
    size_t    i, n;
    uint64_t  word;

    n = len;
    i = 0;

    /* bytes 10xxxxxx: bit 7 is set and bit 6 is not */

    for ( /* void */ ; i + 8 <= len; i += 8) {
        word = kvr_string_word(s + i);
        word = word & ~(word << 1) & KVR_STRING_HIGH;
        n -= (size_t) __builtin_popcountll(word);
    }

    for ( /* void */ ; i < len; i++) {
        n -= !kvr_string_starts((unsigned char) s[i]);
    }

    return n;
}


size_t
kvr_string_offset(const char *s, size_t len, size_t i)
{
    size_t    at, n;
    uint64_t  word;

    at = 0;

    /* whole words before the character */

    while (at + 8 <= len) {
        word = kvr_string_word(s + at);
        word = word & ~(word << 1) & KVR_STRING_HIGH;
        n = 8 - (size_t) __builtin_popcountll(word);

        if (n > i) {
            break;
        }

        i -= n;
        at += 8;
    }

    for ( /* void */ ; at < len; at++) {
        if (kvr_string_starts((unsigned char) s[at]) && i-- == 0) {
            return at;
        }
    }

    return len;
}


size_t
kvr_string_wide(const char *s, size_t len)
{
    return kvr_unicode_ascii(s, 0, len);
}


size_t
kvr_string_odd(const char *s, size_t len)
{
    size_t         i;
    unsigned char  c;

    for (i = 0; i < len; i++) {
        c = (unsigned char) s[i];

        if (c < 0x20 || c > 0x7e || c == '\'' || c == '"' || c == '\\') {
            break;
        }
    }

    return i;
}


/* ---- white space -------------------------------------------------------- */

/* The length of the space at s, of at most len > 0 bytes; 0: it is none. */

static size_t
kvr_string_space(const unsigned char *s, size_t len)
{
    unsigned  c;

    if (s[0] == ' ' || (s[0] >= 9 && s[0] <= 13)
        || (s[0] >= 0x1c && s[0] <= 0x1f))
    {
        return 1;
    }

    /* U+0085, U+00A0 */

    if (s[0] == 0xc2) {
        return (len >= 2 && (s[1] == 0x85 || s[1] == 0xa0)) ? 2 : 0;
    }

    if (s[0] < 0xe1 || s[0] > 0xe3 || len < 3) {
        return 0;
    }

    c = (s[0] & 15u) << 12 | (s[1] & 63u) << 6 | (s[2] & 63u);

    return (c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028
            || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000)
           ? 3 : 0;
}


/* May a space begin with this byte?  Most bytes of a text are none. */

static inline bool
kvr_string_may_be_space(unsigned char c)
{
    return c <= ' ' || c == 0xc2 || (c >= 0xe1 && c <= 0xe3);
}


size_t
kvr_string_space_at(const char *s, size_t len, size_t from)
{
    for ( /* void */ ; from < len; from++) {
        if (kvr_string_may_be_space((unsigned char) s[from])
            && kvr_string_space((const unsigned char *) s + from, len - from))
        {
            break;
        }
    }

    return from < len ? from : len;
}


size_t
kvr_string_line_end(const char *s, size_t len, size_t from)
{
    unsigned char  c;

    for ( /* void */ ; from < len; from++) {
        c = (unsigned char) s[from];

        if ((c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e)) {
            break;
        }

        if (c == 0xc2 && len - from > 1 && (unsigned char) s[from + 1] == 0x85)
        {
            break;
        }

        /* U+2028, U+2029 */

        if (c == 0xe2 && len - from > 2 && (unsigned char) s[from + 1] == 0x80
            && ((unsigned char) s[from + 2] & 0xfe) == 0xa8)
        {
            break;
        }
    }

    return from < len ? from : len;
}


size_t
kvr_string_lstrip(const char *s, size_t len)
{
    size_t  i, n;

    for (i = 0; i < len; i += n) {
        n = kvr_string_space((const unsigned char *) s + i, len - i);

        if (n == 0) {
            break;
        }
    }

    return i;
}


size_t
kvr_string_rstrip(const char *s, size_t len)
{
    size_t  at;

    while (len) {
        at = len - 1;

        while (at && !kvr_string_starts((unsigned char) s[at])) {
            at--;
        }

        if (kvr_string_space((const unsigned char *) s + at, len - at)
            != len - at)
        {
            break;
        }

        len = at;
    }

    return len;
}


/* ---- parts -------------------------------------------------------------- */

size_t
kvr_string_find(const char *s, size_t len, const char *part, size_t part_len,
    size_t from)
{
    const char  *found;

    if (from > len || part_len > len - from) {
        return KVR_STRING_NONE;
    }

    found = memmem(s + from, len - from, part, part_len);

    return found ? (size_t) (found - s) : KVR_STRING_NONE;
}


size_t
kvr_string_rfind(const char *s, size_t len, const char *part, size_t part_len)
{
    size_t  at;

    if (part_len > len) {
        return KVR_STRING_NONE;
    }

    for (at = len - part_len + 1; at-- > 0; /* void */ ) {
        if (memcmp(s + at, part, part_len) == 0) {
            return at;
        }
    }

    return KVR_STRING_NONE;
}
