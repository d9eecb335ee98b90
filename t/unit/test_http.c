/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Answers of HTTP/1.x as they come in, byte by byte, and those that never
 * were any.
 */


#include <stdlib.h>

#include "wire/kvr_http.h"
#include "tap.h"


/* Asks with so much of the text in memory of its own; body: what it got. */

static kvr_rc_t
part(const char *text, size_t len, bool end, uint32_t *status, char *body)
{
    char               *copy;
    kvr_rc_t            rc;
    kvr_http_answer_t   a;

    copy = malloc(len ? len : 1);
    memcpy(copy, text, len);

    rc = kvr_http_answer(copy, len, end, &a);

    if (rc == KVR_OK) {
        *status = a.status;
        memcpy(body, a.body, a.len);
        body[a.len] = '\0';
    }

    free(copy);

    return rc;
}


/*
 * The answer is complete with its last byte and not before, unless only the
 * connection's end says so; whole: what follows it is left alone.
 */

static void
answers(const char *text, uint32_t status, const char *body, bool until_end,
    const char *what)
{
    bool      good;
    char     *got;
    size_t    i, len;
    uint32_t  is;

    len = strlen(text);
    got = malloc(len + 1);
    good = true;

    for (i = 0; i < len && good; i++) {
        good = part(text, i, false, &is, got) == KVR_BUSY;
    }

    ok(good, "%s: not complete before its end", what);

    is = 0;
    good = part(text, len, until_end, &is, got) == KVR_OK && is == status
           && strcmp(got, body) == 0;

    ok(good, "%s: %u \"%s\"", what, status, body);

    free(got);
}


static void
wrong(const char *text, const char *what)
{
    char      body[256];
    uint32_t  is;

    ok(part(text, strlen(text), false, &is, body) == KVR_INVALID, "%s", what);
}


static void
cut(const char *text, const char *what)
{
    char      body[256];
    uint32_t  is;

    ok(part(text, strlen(text), false, &is, body) == KVR_BUSY
       && part(text, strlen(text), true, &is, body) == KVR_INVALID,
       "%s: more is waited for, and none at the end", what);
}


static void
nonsense(void)
{
    char               *text, *body;
    size_t              i, len, n;
    unsigned            k;
    uint32_t            status;
    static const char  *words[] = {
        "HTTP/1.1 200 OK\r\n", "Transfer-Encoding: chunked\r\n", "\r\n",
        "Content-Length: ", "3\r\n", "ffffffff\r\n", "0\r\n", "abc", ":",
        "\n", "10;x=y\r\n", "x: y\r\n", "\xff", "8", "\r"
    };

    srandom(3);
    text = malloc(4096);
    body = malloc(4096);

    for (k = 0; k < 30000; k++) {
        len = (size_t) sprintf(text, "%s%s", k & 1 ? words[0] : "",
                               k & 2 ? words[1] : "");
        n = (size_t) random() % 20;

        for (i = 0; i < n; i++) {
            len += (size_t) sprintf(text + len, "%s",
                                    words[(size_t) random() % 15]);
        }

        (void) part(text, len, k & 4, &status, body);
    }

    free(text);
    free(body);

    ok(true, "30000 answers of nonsense do no harm");
}


int
main(void)
{
    char  *text;

    answers("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello",
            false, "an answer with a length");
    answers("HTTP/1.1 404 Not Found\r\ncontent-length:\t0 \r\n\r\n", 404, "",
            false, "an empty one");
    answers("HTTP/1.0 200\nServer: x\n\nhello", 200, "hello", true,
            "one until the end, with short ends of line");
    answers("HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n"
            "3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n", 200, "hello", false,
            "one in chunks");
    answers("HTTP/1.1 204 No Content\r\n\r\n", 204, "", false,
            "one that has no body");

    wrong("SSH-2.0-OpenSSH_9.2\r\n", "another protocol is none");
    wrong("HTTP/2.0 200 OK\r\n\r\n", "nor is another version");
    wrong("HTTP/1.1 2xx OK\r\n\r\n", "nor a status without digits");
    wrong("HTTP/1.1 100 Continue\r\n\r\n", "nor what only announces one");
    wrong("HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", "a field has a colon");
    wrong("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
          "a length is no less than 0");
    wrong("HTTP/1.1 200 OK\r\nContent-Length: 1234567890123456\r\n\r\n",
          "nor without measure");
    wrong("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
          "nor two of them");
    wrong("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
          "an unknown coding is refused");
    wrong("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
          "a chunk has a size");
    wrong("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
          "123456789\r\n", "which has a measure");
    wrong("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
          "1\r\nabcd\r\n", "and is true");

    cut("HTTP/1.1 2", "a cut status");
    cut("HTTP/1.1 200 OK\r\nServer: x\r\n", "a cut header");
    cut("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", "a cut body");
    cut("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        "ffffffff\r\nabc", "a cut chunk");

    text = malloc(40000);
    memset(text, 'x', 39999);
    memcpy(text, "HTTP/1.1 200 OK\r\na: ", 20);
    text[39999] = '\0';
    wrong(text, "a header has an end");
    free(text);

    nonsense();

    return done();
}
