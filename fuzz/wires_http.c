/*
 * Copyright (C) the nginx-kv-router authors
 *
 * In the place of libcurl.
 */


#define CURL_DISABLE_TYPECHECK

#include "wires.h"

#include <errno.h>
#include <stdarg.h>


#undef curl_easy_setopt
#undef curl_easy_getinfo


static struct {
    bool        ready;
    CURLcode    code;
    long        status;
    void       *body;
    size_t      len;
    size_t    (*write)(char *bytes, size_t one, size_t n, void *data);
    void       *data;
    bool        asked;
    bool        done;
} http;


void
wires_http_clear(void)
{
    free(http.body);
    memset(&http, 0, sizeof(http));
}


void
wires_http(CURLcode code, long status, const void *body, size_t len)
{
    free(http.body);

    http.ready = true;
    http.code = code;
    http.status = status;
    http.body = fuzz_copy(body, len);
    http.len = len;
}


CURLcode
curl_global_init(long flags)
{
    return CURLE_OK;
}


CURLM *
curl_multi_init(void)
{
    return (CURLM *) &http;
}


CURL *
curl_easy_init(void)
{
    return (CURL *) &http;
}


void
curl_easy_cleanup(CURL *easy)
{
}


CURLMcode
curl_multi_cleanup(CURLM *m)
{
    return CURLM_OK;
}


struct curl_slist *
curl_slist_append(struct curl_slist *list, const char *text)
{
    static struct curl_slist  one;

    return &one;
}


void
curl_slist_free_all(struct curl_slist *list)
{
}


CURLcode
curl_easy_setopt(CURL *easy, CURLoption option, ...)
{
    va_list  args;

    va_start(args, option);

    if (option == CURLOPT_WRITEFUNCTION) {
        http.write = va_arg(args, size_t (*)(char *, size_t, size_t, void *));

    } else if (option == CURLOPT_WRITEDATA) {
        http.data = va_arg(args, void *);
    }

    va_end(args);

    return CURLE_OK;
}


CURLcode
curl_easy_getinfo(CURL *easy, CURLINFO info, ...)
{
    va_list  args;

    va_start(args, info);
    *va_arg(args, long *) = info == CURLINFO_RESPONSE_CODE ? http.status
                                                            : ECONNREFUSED;
    va_end(args);

    return CURLE_OK;
}


const char *
curl_easy_strerror(CURLcode code)
{
    return "an error";
}


CURLMcode
curl_multi_add_handle(CURLM *m, CURL *easy)
{
    http.asked = true;

    return CURLM_OK;
}


CURLMcode
curl_multi_remove_handle(CURLM *m, CURL *easy)
{
    http.asked = false;

    return CURLM_OK;
}


CURLMcode
curl_multi_fdset(CURLM *m, fd_set *in, fd_set *out, fd_set *error, int *max)
{
    return CURLM_OK;
}


CURLMcode
curl_multi_timeout(CURLM *m, long *ms)
{
    return CURLM_OK;
}


/* The body comes in two pieces. */

CURLMcode
curl_multi_perform(CURLM *m, int *running)
{
    size_t   half;
    char    *piece;

    if (!http.asked || !http.ready) {
        return CURLM_OK;
    }

    half = http.len / 2;

    piece = fuzz_copy(http.body, half);
    (void) http.write(piece, 1, half, http.data);
    free(piece);

    piece = fuzz_copy((char *) http.body + half, http.len - half);
    (void) http.write(piece, 1, http.len - half, http.data);
    free(piece);

    http.ready = false;
    http.done = true;

    return CURLM_OK;
}


CURLMsg *
curl_multi_info_read(CURLM *m, int *left)
{
    static CURLMsg  msg;

    if (!http.done) {
        return NULL;
    }

    http.done = false;

    msg.msg = CURLMSG_DONE;
    msg.data.result = http.code;

    return &msg;
}
