/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Unicode as Hugging Face's tokenizers have it.
 *
 * NORMAL FORMS are of Unicode 9, whatever the library's version: the crate
 * unicode-normalization-alignments knows no later one.  libutf8proc has newer
 * data.  By Unicode's stability policy they are exact for the characters that
 * Unicode 9 has.  Newer ones are left alone, from a list.
 *
 * LOWER CASE is that of Rust, character by character: libutf8proc's, and a
 * list of what is newer than Unicode 15.
 *
 * REPAIR.  Their regular expressions know Unicode 16 since version 0.21.4 of
 * the library, Unicode 14 before; PCRE2 10.42 knows Unicode 14.  A character
 * whose properties differ is replaced, in a copy that only PCRE2 sees, by the
 * nearest character that PCRE2 knows with the same category, the same answer
 * to "is it Han?", and the same length in UTF-8: offsets stay.  Nearest, so
 * that literal ranges of a regular expression contain both or neither.
 *
 * Every text here is well-formed UTF-8.  The tables are built once in a
 * process, by kvr_unicode_init(), and are read-only then, for all threads and
 * for processes that are forked.
 */


#ifndef KVR_UNICODE_H_INCLUDED
#define KVR_UNICODE_H_INCLUDED


#include "kvr_bytes.h"


typedef enum {
    KVR_NFC,
    KVR_NFD,
    KVR_NFKC,
    KVR_NFKD
} kvr_unicode_form_t;


/* The repairs for the library's version, by the Unicode that it knows. */
typedef enum {
    KVR_UNICODE_14,
    KVR_UNICODE_16
} kvr_unicode_age_t;


/* The version of the tables: a part of the key of whatever is kept. */
#define KVR_UNICODE_TABLES   1


/*
 * Builds the tables; false: no memory, or libutf8proc has a Unicode that is
 * newer than the lists.
 */
bool kvr_unicode_init(void);

/* A character, and its length in bytes. */
static inline uint32_t
kvr_unicode_get(const char *text, uint32_t *len)
{
    const uint8_t  *p = (const uint8_t *) text;

    if (p[0] < 0x80) {
        *len = 1;
        return p[0];
    }

    if (p[0] < 0xe0) {
        *len = 2;
        return (uint32_t) (p[0] & 0x1f) << 6 | (p[1] & 0x3f);
    }

    if (p[0] < 0xf0) {
        *len = 3;
        return (uint32_t) (p[0] & 0x0f) << 12 | (uint32_t) (p[1] & 0x3f) << 6
               | (p[2] & 0x3f);
    }

    *len = 4;

    return (uint32_t) (p[0] & 0x07) << 18 | (uint32_t) (p[1] & 0x3f) << 12
           | (uint32_t) (p[2] & 0x3f) << 6 | (p[3] & 0x3f);
}


/* The start of the character that ends before text[at]; at > 0. */
static inline size_t
kvr_unicode_before(const char *text, size_t at)
{
    do {
        at--;
    } while (((uint8_t) text[at] & 0xc0) == 0x80);

    return at;
}


/* The offset behind the ASCII characters that begin at `at`. */

static inline size_t
kvr_unicode_ascii(const char *text, size_t at, size_t len)
{
    uint64_t  word;

    while (at + 8 <= len) {
        memcpy(&word, text + at, 8);

        if (word & UINT64_C(0x8080808080808080)) {
            break;
        }

        at += 8;
    }

    while (at < len && (uint8_t) text[at] < 0x80) {
        at++;
    }

    return at;
}


/* White space: Unicode's property of that name. */
bool kvr_unicode_white(uint32_t c);

/*
 * Can a text be cut before this character, and both parts be normalized apart?
 */
bool kvr_unicode_starts(kvr_unicode_form_t form, uint32_t c);

/* True: the text is in this form already.  False: it may be, or not. */
bool kvr_unicode_quick(kvr_unicode_form_t form, const char *text, size_t len);

/* Adds the normalized text, or the text in lower case, to out. */
void kvr_unicode_normalize(kvr_unicode_form_t form, const char *text,
    size_t len, kvr_bytes_t *out);
void kvr_unicode_lower(const char *text, size_t len, kvr_bytes_t *out);

/* The stand-in of a character for PCRE2. */
uint32_t kvr_unicode_repaired(kvr_unicode_age_t age, uint32_t c);

/*
 * The offset of the first character from `from` on that has to be repaired;
 * len: there is none.
 */
size_t kvr_unicode_broken(kvr_unicode_age_t age, const char *text, size_t from,
    size_t len);

/* Repairs text[from..len), in place. */
void kvr_unicode_repair(kvr_unicode_age_t age, char *text, size_t from,
    size_t len);

/* Is no character moved into or out of the range a .. b by a repair? */
bool kvr_unicode_respects(kvr_unicode_age_t age, uint32_t a, uint32_t b);


#endif /* KVR_UNICODE_H_INCLUDED */
