/*
 * Copyright (C) the nginx-kv-router authors
 *
 * An answer of HTTP/1.x as it comes in: is all of it there, what is its
 * status, where is its body?
 */


#ifndef KVR_HTTP_H_INCLUDED
#define KVR_HTTP_H_INCLUDED


#include "../kvr.h"


#define KVR_HTTP_HEADER_MAX  16384   /* bytes; nginx's own bound is smaller */


typedef struct {
    uint32_t    status;
    char       *body;               /* in the text, put together when it came
                                       in chunks */
    size_t      len;
} kvr_http_answer_t;


/*
 * Looks at what has come so far; end: nothing more will come.  KVR_OK: the
 * answer is complete; a body in chunks has been put together in place.
 * KVR_BUSY: more must come.  KVR_INVALID: the bytes are not an answer.
 */
kvr_rc_t kvr_http_answer(char *text, size_t len, bool end,
    kvr_http_answer_t *a);


#endif /* KVR_HTTP_H_INCLUDED */
