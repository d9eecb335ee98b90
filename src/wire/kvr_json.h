/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A cursor over JSON text in memory: the caller walks through the values that
 * it wants and skips the others.  No tree, no allocation, no recursion.
 *
 *     kvr_json_init(&j, text, len);
 *
 *     if (kvr_json_open(&j, '{')) {
 *         while (kvr_json_key(&j, &key)) {
 *             if (kvr_json_is(&key, "tokens")) {
 *                 kvr_json_ids(&j, tokens, cap, &n);
 *             } else {
 *                 kvr_json_skip(&j);
 *             }
 *         }
 *     }
 *
 *     if (!kvr_json_end(&j)) { … j.error, j.error_at … }
 *
 * After an error every function answers false and changes nothing, so that
 * one check at the end is enough.  The whole text is checked by RFC 8259, the
 * skipped values too, with two exceptions: bytes above 0x7f in strings are
 * taken as they are, unless `utf8' is set, and nesting is bounded.  Nothing is
 * converted to a double.
 */


#ifndef KVR_JSON_H_INCLUDED
#define KVR_JSON_H_INCLUDED


#include "../kvr.h"


#define KVR_JSON_DEPTH       64          /* levels; one bit each in a u64 */


typedef struct kvr_json_way_s  kvr_json_way_t;

typedef struct {
    const kvr_json_way_t  *way;         /* the fastest; see kvr_json_ways.h */
    const char            *start;
    const char            *pos;
    const char            *end;
    uint64_t               maps;        /* bit d: level d + 1 is an object */
    uint32_t               depth;
    bool                   first;       /* nothing was read at this level
                                           yet */
    bool                   utf8;        /* set by the caller: a string that is
                                           not UTF-8 (RFC 3629) is an error */

    const char            *error;       /* static sentence; NULL: all is
                                           well */
    size_t                 error_at;    /* byte offset */
} kvr_json_t;


/* A string or number as it stands in the text, without its quotes. */
typedef struct {
    const char  *data;
    size_t       len;
    bool         escaped;       /* a string with backslashes */
    bool         wide;          /* a string that may have bytes over 0x7f */
    bool         surrogates;    /* a string with escapes \ud800 .. \udfff */
} kvr_json_text_t;


void kvr_json_init(kvr_json_t *j, const char *text, size_t len);

/* First byte of the next value: one of {["-0123456789tfn, or 0. */
int kvr_json_peek(kvr_json_t *j);

/* Enters an object ('{') or array ('['); false when the value is no such. */
bool kvr_json_open(kvr_json_t *j, int bracket);

/*
 * Reads the next key of the object.  False: the object has ended, and the
 * cursor is behind it.
 */
bool kvr_json_key(kvr_json_t *j, kvr_json_text_t *key);

/*
 * Is there another element in the array?  False: the array has ended, and the
 * cursor is behind it.
 */
bool kvr_json_next(kvr_json_t *j);

/* The values. */
bool kvr_json_string(kvr_json_t *j, kvr_json_text_t *s);
bool kvr_json_number(kvr_json_t *j, kvr_json_text_t *n);
bool kvr_json_bool(kvr_json_t *j, bool *value);
bool kvr_json_null(kvr_json_t *j);

/* A number, or a string of a number: 0 .. 2^64 - 1, without loss. */
bool kvr_json_u64(kvr_json_t *j, uint64_t *value);

/*
 * Reads an array of integers 0 .. 2^32 - 1 as fast as possible.  *n is the
 * number of integers; at most cap of them are written to out.
 */
bool kvr_json_ids(kvr_json_t *j, uint32_t *out, size_t cap, size_t *n);

/* Skips a value of any kind. */
bool kvr_json_skip(kvr_json_t *j);

/*
 * Skips a value.  *deep becomes true if lists and objects in the value are
 * nested deeper than `levels`.
 */
bool kvr_json_skip_levels(kvr_json_t *j, uint32_t levels, bool *deep);

/*
 * Skips the rest of all objects and arrays that are open, down to this depth.
 */
bool kvr_json_leave(kvr_json_t *j, uint32_t depth);

/* Is nothing but white space left, without an error before? */
bool kvr_json_end(kvr_json_t *j);

/* Reports an error in the value that begins at `at`; answers false. */
bool kvr_json_fail(kvr_json_t *j, const char *at, const char *error);


/* Compares a string with a terminated one, escapes decoded. */
bool kvr_json_is(const kvr_json_text_t *s, const char *with);

/*
 * Decodes a string; lone surrogates become U+FFFD.  Writes at most size bytes
 * and returns how many there are, so that more than size means: too long.
 */
size_t kvr_json_decode(const kvr_json_text_t *s, char *out, size_t size);

/* The first escape of a surrogate that is not half of a pair; NULL: none. */
const char *kvr_json_lone(const kvr_json_text_t *s);

/*
 * Reads 1 .. 20 digits without leading zeros.  False: the text is anything
 * else.
 */
bool kvr_json_digits(const char *s, size_t len, uint64_t *value);


#endif /* KVR_JSON_H_INCLUDED */
