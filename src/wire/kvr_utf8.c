/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_utf8.h"

#include <endian.h>


/*
 * Returns the length of the character at p, 2 .. 4. 0: the bytes are not a
 * character.
 */

static inline size_t
kvr_utf8_character(const uint8_t *p, size_t left)
{
    if (p[0] < 0xc2 || left < 2 || (p[1] & 0xc0) != 0x80) {
        return 0;
    }

    if (p[0] < 0xe0) {
        return 2;
    }

    if (left < 3 || (p[2] & 0xc0) != 0x80) {
        return 0;
    }

    if (p[0] < 0xf0) {

        /* e0 a0 .. is the shortest form; ed a0 .. would be a surrogate */

        return (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] >= 0xa0)
               ? 0 : 3;
    }

    if (p[0] > 0xf4 || left < 4 || (p[3] & 0xc0) != 0x80) {
        return 0;
    }

    /* f0 90 .. is the shortest form; f4 90 .. is above U+10FFFF */

    return (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] >= 0x90)
           ? 0 : 4;
}


/* A first byte of three, of which any two can follow. */

static bool
kvr_utf8_plain_lead(uint8_t c)
{
    return c != 0xe0 && c != 0xed;
}


size_t
kvr_utf8_valid(const char *text, size_t len)
{
    size_t          i, n;
    uint64_t        w;
    const uint8_t  *p;

    p = (const uint8_t *) text;
    i = 0;

    while (i < len) {

        if (p[i] >= 0x80) {

            /* two characters of three bytes each, as most of Chinese is */

            if (len - i >= 8) {
                memcpy(&w, p + i, 8);
                w = le64toh(w);

                if ((w & 0xc0c0f0c0c0f0ull) == 0x8080e08080e0ull
                    && kvr_utf8_plain_lead(p[i])
                    && kvr_utf8_plain_lead(p[i + 3]))
                {
                    i += 6;
                    continue;
                }
            }

            n = kvr_utf8_character(p + i, len - i);
            if (n == 0) {
                break;
            }

            i += n;
            continue;
        }

        /* eight bytes of ASCII at once, where there are so many */

        if (len - i >= 8) {
            memcpy(&w, p + i, 8);

            if ((w & 0x8080808080808080ull) == 0) {
                i += 8;
                continue;
            }
        }

        i++;
    }

    return i;
}


uint32_t
kvr_utf8_put(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char) c;
        return 1;
    }

    if (c < 0x800) {
        out[0] = (char) (0xc0 | c >> 6);
        out[1] = (char) (0x80 | (c & 0x3f));
        return 2;
    }

    if (c < 0x10000) {
        out[0] = (char) (0xe0 | c >> 12);
        out[1] = (char) (0x80 | (c >> 6 & 0x3f));
        out[2] = (char) (0x80 | (c & 0x3f));
        return 3;
    }

    out[0] = (char) (0xf0 | c >> 18);
    out[1] = (char) (0x80 | (c >> 12 & 0x3f));
    out[2] = (char) (0x80 | (c >> 6 & 0x3f));
    out[3] = (char) (0x80 | (c & 0x3f));

    return 4;
}
