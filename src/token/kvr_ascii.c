/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_ascii.h"


#define KVR_ASCII_LETTER     1
#define KVR_ASCII_DIGIT      2
#define KVR_ASCII_SPACE      4
#define KVR_ASCII_LINE       8          /* a space that ends a line */
#define KVR_ASCII_SIGN       16
#define KVR_ASCII_BEYOND     32

#define L  KVR_ASCII_LETTER
#define D  KVR_ASCII_DIGIT
#define W  KVR_ASCII_SPACE
#define N  (KVR_ASCII_SPACE|KVR_ASCII_LINE)
#define S  KVR_ASCII_SIGN
#define B  KVR_ASCII_BEYOND
#define B16  B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, B

static const uint8_t  kvr_ascii_class[256] = {
    S, S, S, S, S, S, S, S, S, W, N, W, W, N, S, S,
    S, S, S, S, S, S, S, S, S, S, S, S, S, S, S, S,
    W, S, S, S, S, S, S, S, S, S, S, S, S, S, S, S,
    D, D, D, D, D, D, D, D, D, D, S, S, S, S, S, S,
    S, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L,
    L, L, L, L, L, L, L, L, L, L, L, S, S, S, S, S,
    S, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L,
    L, L, L, L, L, L, L, L, L, L, L, S, S, S, S, S,
    B16, B16, B16, B16, B16, B16, B16, B16
};

#undef L
#undef D
#undef W
#undef N
#undef S
#undef B
#undef B16


/* before and behind the numbers: of Llama 3, Qwen 2 and many others */
#define KVR_ASCII_HEAD                                                        \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define KVR_ASCII_TAIL                                                        \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"


static size_t kvr_ascii_short(const char *text, size_t len, size_t at);
static size_t kvr_ascii_spaces(const char *text, size_t len, size_t from);


uint32_t
kvr_ascii_digits(const char *text, size_t len)
{
    uint32_t  i;

    static const struct {
        const char  *text;
        uint32_t     digits;
    } known[] = {
        { KVR_ASCII_HEAD "\\p{N}" KVR_ASCII_TAIL, 1 },
        { KVR_ASCII_HEAD "\\p{N}{1,3}" KVR_ASCII_TAIL, 3 }
    };

    for (i = 0; i < 2; i++) {
        if (strlen(known[i].text) == len
            && memcmp(known[i].text, text, len) == 0)
        {
            return known[i].digits;
        }
    }

    return 0;
}


/* The first byte from `at` on that is not of these classes, or len. */

static inline size_t
kvr_ascii_run(const char *text, size_t len, size_t at, uint8_t classes)
{
    while (at < len && (kvr_ascii_class[(uint8_t) text[at]] & classes)) {
        at++;
    }

    return at;
}


/* The class of the byte at a place; 0 behind the end. */

static inline uint8_t
kvr_ascii_at(const char *text, size_t len, size_t at)
{
    return at < len ? kvr_ascii_class[(uint8_t) text[at]] : 0;
}


size_t
kvr_ascii_match(uint32_t digits, const char *text, size_t len, size_t from)
{
    size_t   at;
    uint8_t  class, next;

    class = kvr_ascii_class[(uint8_t) text[from]];
    next = kvr_ascii_at(text, len, from + 1);

    if (class == KVR_ASCII_BEYOND) {
        return 0;
    }

    if (text[from] == '\'') {

        /* a long s, beyond ASCII, is an "s", too */

        if (next == KVR_ASCII_BEYOND) {
            return 0;
        }

        at = kvr_ascii_short(text, len, from + 1);

        if (at) {
            return at;
        }
    }

    if (class == KVR_ASCII_LETTER
        || (next == KVR_ASCII_LETTER
            && !(class & (KVR_ASCII_DIGIT|KVR_ASCII_LINE))))
    {
        at = kvr_ascii_run(text, len, from + 1, KVR_ASCII_LETTER);

        return kvr_ascii_at(text, len, at) == KVR_ASCII_BEYOND ? 0 : at;
    }

    if (class == KVR_ASCII_DIGIT) {
        at = kvr_ascii_run(text, kvr_min(from + digits, len), from + 1,
                           KVR_ASCII_DIGIT);

        return at < from + digits
               && kvr_ascii_at(text, len, at) == KVR_ASCII_BEYOND ? 0 : at;
    }

    /* the one character before a word, or a space before signs */

    if (next == KVR_ASCII_BEYOND) {
        return 0;
    }

    if (class == KVR_ASCII_SIGN
        || (text[from] == ' ' && next == KVR_ASCII_SIGN))
    {
        at = kvr_ascii_run(text, len, from + 1, KVR_ASCII_SIGN);

        return kvr_ascii_at(text, len, at) == KVR_ASCII_BEYOND
               ? 0 : kvr_ascii_run(text, len, at, KVR_ASCII_LINE);
    }

    return kvr_ascii_spaces(text, len, from);
}


/* The end of s, t, re, ve, m, ll or d behind an apostrophe; 0: no such. */

static size_t
kvr_ascii_short(const char *text, size_t len, size_t at)
{
    char  a, b;

    a = at < len ? text[at] | 0x20 : 0;
    b = at + 1 < len ? text[at + 1] | 0x20 : 0;

    if (a == 's' || a == 't' || a == 'm' || a == 'd') {
        return at + 1;
    }

    return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l')
           ? at + 2 : 0;
}


/*
 * To the last end of a line; without one, all but the one space that goes with
 * what follows.
 */

static size_t
kvr_ascii_spaces(const char *text, size_t len, size_t from)
{
    size_t  at, end;

    end = kvr_ascii_run(text, len, from, KVR_ASCII_SPACE);

    if (kvr_ascii_at(text, len, end) == KVR_ASCII_BEYOND) {
        return 0;
    }

    for (at = end; at > from; at--) {
        if (kvr_ascii_class[(uint8_t) text[at - 1]] & KVR_ASCII_LINE) {
            return at;
        }
    }

    return end < len && end - from > 1 ? end - 1 : end;
}
