/*
 * Copyright (C) the nginx-kv-router authors
 *
 * JSON text as a tape: one scan writes an entry for each value, in the order
 * of the text, into the caller's array.  Readers walk over the entries; the
 * text is not scanned again.
 *
 *     {"model": "m", "prompt": [1, 2, 3], "stop": ["a", null]}
 *
 *     0  none
 *     1  object  len 3, next 10
 *     2  key     "model", next 4
 *     3  string  "m", next 4
 *     4  key     "prompt", next 6
 *     5  ids     len 3, next 6
 *     6  key     "stop", next 10
 *     7  array   len 2, next 10
 *     8  string  "a", next 9
 *     9  null    next 10
 *
 * An array which consists only of integers
 * 0 .. 2^32 - 1, at least one, is a single entry of the kind ids: the scan
 * writes its numbers to the caller's array of ids.
 *
 * The text must be JSON by RFC 8259, with objects and arrays at most
 * KVR_JSON_DEPTH levels deep.  All strings and keys are well-formed UTF-8, and
 * the surrogates of their escapes come in pairs.  If a key comes twice in an
 * object, both are in the tape, and kvr_tape_get() finds the last one, as JSON
 * parsers do.
 *
 *     kvr_tape_init(&t, entries, cap, ids, ids_cap);
 *
 *     if (kvr_tape_scan(&t, text, len) != KVR_OK) { … t.error, t.error_at … }
 *
 *     v = kvr_tape_get(&t, KVR_TAPE_ROOT, "model");
 *
 *     if (kvr_tape_kind(&t, v) == KVR_TAPE_STRING) {
 *         s = kvr_tape_text(&t, v);
 *         …
 *     }
 *
 *     for (i = kvr_tape_first(&t, v); i; i = kvr_tape_next(&t, v, i)) { … }
 *
 * The tape points to the text and to the caller's arrays: all of them must
 * stay as long as the tape is read.  Nothing is allocated.  A tape is for one
 * thread.
 */


#ifndef KVR_TAPE_H_INCLUDED
#define KVR_TAPE_H_INCLUDED


#include "kvr_json.h"


/* the index of the value at the top; index 0 stands for "not there" */
#define KVR_TAPE_ROOT        1

/* the flags of an entry */
#define KVR_TAPE_ESCAPED     1          /* a string or key with backslashes */
#define KVR_TAPE_CUT         2          /* the contents are not in the tape:
                                           the caller's array was full */


typedef enum {
    KVR_TAPE_NONE = 0,                  /* not there: only entry 0 */
    KVR_TAPE_NULL,
    KVR_TAPE_FALSE,
    KVR_TAPE_TRUE,
    KVR_TAPE_INT,                       /* no fraction, no exponent; any size,
                                           any sign */
    KVR_TAPE_FLOAT,
    KVR_TAPE_STRING,
    KVR_TAPE_KEY,                       /* the next entry is the key's value */
    KVR_TAPE_ARRAY,
    KVR_TAPE_OBJECT,
    KVR_TAPE_IDS
} kvr_tape_kind_t;


typedef struct {
    uint32_t  at;               /* byte offset of the value's first byte: of
                                   the quote, the bracket, the digit */
    uint32_t  end;              /* byte offset behind its last byte */
    uint32_t  len;              /* array: number of elements; object: number of
                                   keys; ids: number of ids; else: bytes of
                                   text, without quotes */
    uint32_t  next;             /* index of the entry behind the whole value;
                                   of a key: behind the key's value */
    uint32_t  first;            /* ids: index of the first one in tape->ids */
    uint16_t  kind;             /* kvr_tape_kind_t */
    uint16_t  flags;            /* KVR_TAPE_… */
} kvr_tape_entry_t;


typedef struct {
    const kvr_json_way_t  *way;         /* the fastest; see kvr_json_ways.h */

    const char        *text;
    size_t             text_len;

    kvr_tape_entry_t  *entries;         /* the caller's */
    uint32_t           cap;
    uint32_t           n;               /* entries written, 0 included */

    uint32_t          *ids;             /* the caller's */
    size_t             ids_cap;
    size_t             nids;            /* number of ids written */

    const char        *error;           /* static sentence; NULL: none */
    size_t             error_at;        /* byte offset in the text */
} kvr_tape_t;


/*
 * Gives the tape its two arrays.  entries: at least 3; a text of len bytes has
 * at most len / 2 + 3 entries and len / 2 + 1 ids.
 */
void kvr_tape_init(kvr_tape_t *t, kvr_tape_entry_t *entries, uint32_t cap,
    uint32_t *ids, size_t ids_cap);

/*
 * Scans a text; what the tape contained before is forgotten.
 *
 * KVR_INVALID: the text is no JSON, or not of the kind described above; its
 * length is over 2^32 - 2.  KVR_FULL: the value at the top has more members
 * than the array has room for.  Both: t->error and t->error_at, and the
 * entries must not be read.
 *
 * KVR_OK: entry KVR_TAPE_ROOT is the value at the top.  If the array of
 * entries became full within a member of the value at the top, only this
 * member has the flag KVR_TAPE_CUT: its kind, at and end are right, its len is
 * 0, and it has no entries of its own; the strings in it were not checked for
 * UTF-8.  If an
 * array of ids does not fit into the rest of the array of ids, its entry has
 * the flag KVR_TAPE_CUT, a right len, and no ids; see kvr_tape_ids().
 */
kvr_rc_t kvr_tape_scan(kvr_tape_t *t, const char *text, size_t len);


/*
 * Look-ups answer with the index of an entry, or 0: not there.  A 0 can be
 * looked up in again: nothing is found in it.
 */

/*
 * The value of a key in an object; of a key that comes several times the last
 * value.  0: no such key, or no object.  name: plain, terminated, at most 64
 * bytes; keys with escapes are decoded for the comparison.
 */
uint32_t kvr_tape_get(const kvr_tape_t *t, uint32_t object, const char *name);

/*
 * The children of an array or object, one after the other: first the first,
 * then the one behind child i; 0: no more.  The children of an object are its
 * keys; the value of key i is i + 1.
 */
uint32_t kvr_tape_first(const kvr_tape_t *t, uint32_t parent);
uint32_t kvr_tape_next(const kvr_tape_t *t, uint32_t parent, uint32_t i);

/* KVR_TAPE_NONE for 0. */
static inline kvr_tape_kind_t
kvr_tape_kind(const kvr_tape_t *t, uint32_t i)
{
    return (kvr_tape_kind_t) t->entries[i].kind;
}


/* Is there a value which is not null?  False for index 0. */
static inline bool
kvr_tape_given(const kvr_tape_t *t, uint32_t i)
{
    return kvr_tape_kind(t, i) > KVR_TAPE_NULL;
}


/*
 * A string, a key or a number as it stands in the text, without its quotes.
 * i must be such an entry.
 */
kvr_json_text_t kvr_tape_text(const kvr_tape_t *t, uint32_t i);

/* Any value as it stands in the text, with quotes and brackets. */
kvr_json_text_t kvr_tape_raw(const kvr_tape_t *t, uint32_t i);

/* Is the entry a string, and equal to this one?  Escapes are decoded. */
bool kvr_tape_is(const kvr_tape_t *t, uint32_t i, const char *with);

/* An integer 0 .. 2^64 - 1; false for every other value. */
bool kvr_tape_u64(const kvr_tape_t *t, uint32_t i, uint64_t *value);

/*
 * The ids of an entry of the kind ids.  If they were left out for want of room
 * (KVR_TAPE_CUT), they are read again, to the start of t->ids, over the ids of
 * all other entries: these must not be read from then on.
 *
 * KVR_FULL: there are more than t->ids_cap of them; *ids points to the first
 * t->ids_cap, *n is the number of all.  KVR_DECLINED: not of this kind.
 */
kvr_rc_t kvr_tape_ids(kvr_tape_t *t, uint32_t i, const uint32_t **ids,
    size_t *n);


#endif /* KVR_TAPE_H_INCLUDED */
