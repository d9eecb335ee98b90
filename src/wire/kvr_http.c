/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_http.h"
#include "kvr_decoder.h"

#include <strings.h>


#define KVR_HTTP_SIZE_DIGITS 8           /* of a chunk: 4 GiB */
#define KVR_HTTP_LENGTH      15          /* digits of a length */


typedef struct {
    bool        chunked;
    bool        sized;              /* the length is known */
    uint64_t    length;
} kvr_http_header_t;


/* Reads a status line: "HTTP/1.1 200 OK". */

static kvr_rc_t
kvr_http_status(const char *text, size_t len, uint32_t *status)
{
    size_t  i;

    static const char  pattern[] = "HTTP/1.d ddd";

    for (i = 0; i < len && i < sizeof(pattern) - 1; i++) {

        if (pattern[i] != 'd') {

            if (text[i] != pattern[i]) {
                return KVR_INVALID;
            }

            continue;
        }

        if (text[i] < '0' || text[i] > '9') {
            return KVR_INVALID;
        }
    }

    if (i < sizeof(pattern) - 1) {
        return KVR_BUSY;
    }

    *status = (uint32_t) (text[9] - '0') * 100
              + (uint32_t) (text[10] - '0') * 10 + (uint32_t) (text[11] - '0');

    return *status >= 200 ? KVR_OK : KVR_INVALID;
}


/* Reads a header line, given without the end of the line. */

static bool
kvr_http_field(const char *line, size_t len, kvr_http_header_t *h)
{
    size_t       n;
    uint64_t     length;
    const char  *p;

    p = memchr(line, ':', len);
    if (p == NULL) {
        return false;
    }

    n = (size_t) (p++ - line);

    while (p < line + len && (*p == ' ' || *p == '\t')) {
        p++;
    }

    len -= (size_t) (p - line);

    while (len && (p[len - 1] == ' ' || p[len - 1] == '\t')) {
        len--;
    }

    if (n == 14 && strncasecmp(line, "Content-Length", 14) == 0) {

        if (len > KVR_HTTP_LENGTH || !kvr_u64_parse(p, len, &length)
            || (h->sized && h->length != length))
        {
            return false;
        }

        h->sized = true;
        h->length = length;

    } else if (n == 17 && strncasecmp(line, "Transfer-Encoding", 17) == 0) {

        if (len != 7 || strncasecmp(p, "chunked", 7) != 0) {
            return false;
        }

        h->chunked = true;
    }

    return true;
}


/* Reads the header; returns the text after its empty line, or NULL and *rc. */

static char *
kvr_http_header(char *text, char *end, kvr_http_header_t *h, kvr_rc_t *rc)
{
    char   *p, *eol;
    size_t  len;

    memset(h, 0, sizeof(kvr_http_header_t));
    *rc = KVR_INVALID;

    for (p = text; /* void */ ; p = eol + 1) {

        eol = memchr(p, '\n', (size_t) (end - p));

        if (eol == NULL) {
            *rc = end - text > KVR_HTTP_HEADER_MAX ? KVR_INVALID : KVR_BUSY;
            return NULL;
        }

        if (eol - text > KVR_HTTP_HEADER_MAX) {
            return NULL;
        }

        len = (size_t) (eol - p);

        if (len && p[len - 1] == '\r') {
            len--;
        }

        if (len == 0) {
            return eol + 1;
        }

        /* the first line is not a field */

        if (p != text && !kvr_http_field(p, len, h)) {
            return NULL;
        }
    }
}


/*
 * Walks along the chunks.  KVR_OK: the last chunk is there, and *len is the
 * length of all chunks together.  If move is set, the chunks are moved
 * together, to p.
 */

static kvr_rc_t
kvr_http_chunks(char *p, size_t left, bool move, size_t *len)
{
    char    *to, *eol;
    size_t   size, digits;

    to = p;
    *len = 0;

    for ( ;; ) {

        digits = kvr_hex_digits(p, kvr_min(left, KVR_HTTP_SIZE_DIGITS + 1));

        if (digits > KVR_HTTP_SIZE_DIGITS) {
            return KVR_INVALID;
        }

        size = (size_t) kvr_hex_value(p, digits);
        eol = memchr(p, '\n', left);

        if (eol == NULL) {
            return left > KVR_HTTP_HEADER_MAX ? KVR_INVALID : KVR_BUSY;
        }

        if (digits == 0) {
            return KVR_INVALID;
        }

        left -= (size_t) (eol + 1 - p);
        p = eol + 1;

        /* trailers after the last chunk are not read */

        if (size == 0) {
            return KVR_OK;
        }

        if (left < size + 2) {
            return KVR_BUSY;
        }

        if (p[size] != '\r' || p[size + 1] != '\n') {
            return KVR_INVALID;
        }

        if (move) {
            memmove(to, p, size);
            to += size;
        }

        *len += size;
        left -= size + 2;
        p += size + 2;
    }
}


kvr_rc_t
kvr_http_answer(char *text, size_t len, bool end, kvr_http_answer_t *a)
{
    char               *body, *last;
    size_t              left;
    kvr_rc_t            rc;
    kvr_http_header_t   h;

    last = text + len;
    body = NULL;

    rc = kvr_http_status(text, len, &a->status);

    if (rc == KVR_OK) {
        body = kvr_http_header(text, last, &h, &rc);
    }

    if (body == NULL) {
        return rc == KVR_BUSY && end ? KVR_INVALID : rc;
    }

    a->body = body;
    a->len = (size_t) (last - body);

    if (a->status == 204 || a->status == 304) {
        a->len = 0;
        return KVR_OK;
    }

    if (h.chunked) {
        left = a->len;
        rc = kvr_http_chunks(body, left, false, &a->len);

        if (rc != KVR_OK) {
            return rc == KVR_BUSY && end ? KVR_INVALID : rc;
        }

        return kvr_http_chunks(body, left, true, &a->len);
    }

    if (h.sized) {

        if (a->len < h.length) {
            return end ? KVR_INVALID : KVR_BUSY;
        }

        a->len = (size_t) h.length;
        return KVR_OK;
    }

    return end ? KVR_OK : KVR_BUSY;
}
