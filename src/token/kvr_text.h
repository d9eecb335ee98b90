/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A text that grows piece by piece, up to a bound: what a chat template
 * renders, and what the encoder and the hashes read.
 *
 *     kvr_text_init(&text, 1 << 20);
 *
 *     if (kvr_text_append(&text, data, len) != KVR_OK) { … }
 *
 *     … text.data, text.len …
 *
 *     kvr_text_free(&text);
 *
 * A text belongs to one thread.  The bytes may move when the text grows: a
 * pointer into it is good until the next call that appends.
 */


#ifndef KVR_TEXT_H_INCLUDED
#define KVR_TEXT_H_INCLUDED


#include "../kvr.h"


typedef struct {
    char    *data;          /* not terminated; NULL: nothing allocated yet */
    size_t   len;           /* bytes of text */
    size_t   cap;           /* bytes allocated */
    size_t   bound;         /* the most bytes that it may ever have */
} kvr_text_t;


/* An empty text without memory. */
void kvr_text_init(kvr_text_t *t, size_t bound);

/* Gives the memory back; the text is empty, with the same bound. */
void kvr_text_free(kvr_text_t *t);

/*
 * Empties the text and sets its bound.  Its memory is kept for the next text,
 * unless it has over KVR_TEXT_KEPT bytes.
 */
#define KVR_TEXT_KEPT   (4u << 20)

void kvr_text_reset(kvr_text_t *t, size_t bound);

/*
 * Appends len bytes.  KVR_FULL: the text would be longer than its bound.
 * KVR_ERROR: no memory.  Both leave it as it is.
 */
kvr_rc_t kvr_text_append(kvr_text_t *t, const char *data, size_t len);

/*
 * Appends a string of well-formed UTF-8 as a JSON string, quotes included, as
 * Python's json.dumps() writes it: with ascii every character over 0x7e is
 * escaped, else only control characters below 0x20, quotes and backslashes
 * are.  Answers as kvr_text_append() does.
 */
kvr_rc_t kvr_text_append_json(kvr_text_t *t, const char *data, size_t len,
    bool ascii);

/* Cuts the text to at most len bytes. */
void kvr_text_cut(kvr_text_t *t, size_t len);


#endif /* KVR_TEXT_H_INCLUDED */
