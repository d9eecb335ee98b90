
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The request's body is scanned once: prompt and fields come from the same
 * tape.  A body which the Lua module does not read is read by nginx, while the
 * Lua coroutine waits on a semaphore.
 */


#include "ngx_http_kv_router_route.h"


#define NGX_HTTP_KV_ROUTER_TAPE_MAX   65536     /* entries: 1.5 MB */

/* bytes: a shorter body takes less than half a millisecond in all */
#define NGX_HTTP_KV_ROUTER_BODY_LONG  65536


/* Wakes the coroutine that waits for the body; freed with the request. */

typedef struct {
    void                           *semaphore;
    ngx_http_kv_router_sem_post_pt  post;
    ngx_http_kv_router_sem_free_pt  free;
} ngx_http_kv_router_waker_t;


static off_t ngx_http_kv_router_body_size(ngx_http_request_t *r);
static void ngx_http_kv_router_body_read(ngx_http_request_t *r);
static void ngx_http_kv_router_waker_free(void *data);
static ngx_uint_t ngx_http_kv_router_body_scan(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx);
static ngx_uint_t ngx_http_kv_router_body_text(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, ngx_str_t *text);
static ngx_int_t ngx_http_kv_router_tape_room(ngx_log_t *log, size_t len,
    size_t max_tokens);


/*
 * The tape that this process scans into.  Its arrays grow to the maximum seen;
 * max_tokens bounds the ids, and the number above bounds the
 * entries.  The entries are copied for the request.
 */

static kvr_tape_t  ngx_http_kv_router_tape;
static ngx_uint_t  ngx_http_kv_router_scans;


/* ---- reading ------------------------------------------------------------ */

int
ngx_http_kv_router_ffi_read_body(ngx_http_request_t *r)
{
    off_t      size;
    ngx_int_t  rc;

    size = r->headers_in.content_length_n;

    if (r->http_version < NGX_HTTP_VERSION_20 || size >= 0) {
        return size >= 0 && size < NGX_HTTP_KV_ROUTER_BODY_LONG ? NGX_DECLINED
                                                                : NGX_DONE;
    }

    /* as Lua's ngx.req functions expect a body */

    r->request_body_in_single_buf = 1;
    r->request_body_in_persistent_file = 1;
    r->request_body_in_clean_file = 1;

    rc = ngx_http_read_client_request_body(r, ngx_http_kv_router_body_read);

    if (rc == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    /* the access phase goes on by the coroutine: nothing ends for the read */

    r->main->count--;

    return rc;
}


int
ngx_http_kv_router_ffi_body_long(ngx_http_request_t *r)
{
    return ngx_http_kv_router_body_size(r) >= NGX_HTTP_KV_ROUTER_BODY_LONG;
}


static off_t
ngx_http_kv_router_body_size(ngx_http_request_t *r)
{
    off_t         size;
    ngx_chain_t  *cl;

    size = 0;

    if (r->request_body) {
        for (cl = r->request_body->bufs; cl; cl = cl->next) {
            size += ngx_buf_size(cl->buf);
        }
    }

    return size;
}


int
ngx_http_kv_router_ffi_wake(ngx_http_request_t *r, void *semaphore,
    ngx_http_kv_router_sem_post_pt post, ngx_http_kv_router_sem_free_pt free)
{
    ngx_pool_cleanup_t          *cln;
    ngx_http_kv_router_waker_t  *waker;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_kv_router_waker_t));
    if (cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_http_kv_router_waker_free;

    waker = cln->data;
    waker->semaphore = semaphore;
    waker->post = post;
    waker->free = free;

    return NGX_OK;
}


/* The whole body is here.  If nobody waits, it was here at once. */

static void
ngx_http_kv_router_body_read(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t          *cln;
    ngx_http_kv_router_waker_t  *waker;

    /* reading has put another handler here, which would not go on */

    r->write_event_handler = ngx_http_core_run_phases;

    for (cln = r->pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_http_kv_router_waker_free) {
            waker = cln->data;
            (void) waker->post(waker->semaphore, 1);
            return;
        }
    }
}


static void
ngx_http_kv_router_waker_free(void *data)
{
    ngx_http_kv_router_waker_t *waker = data;

    waker->free(waker->semaphore);
}


/* ---- the tape ----------------------------------------------------------- */

ngx_uint_t
ngx_http_kv_router_body(ngx_http_request_t *r, ngx_http_kv_router_ctx_t *ctx,
    ngx_uint_t ids)
{
    off_t                       size;
    ngx_buf_t                  *buf;
    ngx_http_kv_router_body_t  *body;

    body = &ctx->body;
    size = ngx_http_kv_router_body_size(r);

    if (size == 0) {
        return NGX_HTTP_KV_ROUTER_NO_PROMPT;
    }

    buf = r->request_body->bufs->buf;

    if (body->scan && body->buf == buf && body->pos == buf->pos
        && body->size == size
        && (!ids || body->scan == ngx_http_kv_router_scans))
    {
        return body->why;
    }

    body->buf = buf;
    body->pos = buf->pos;
    body->size = size;
    body->scan = ++ngx_http_kv_router_scans;
    body->why = ngx_http_kv_router_body_scan(r, ctx);

    return body->why;
}


static ngx_uint_t
ngx_http_kv_router_body_scan(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx)
{
    void        *entries;
    size_t       size;
    ngx_str_t    text;
    ngx_uint_t   why;
    kvr_tape_t  *tape;

    tape = &ngx_http_kv_router_tape;

    if (ctx->body.size > (off_t) ctx->zone->conf.max_body) {
        ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                      "kv_router: the body has %O bytes, more than "
                      "max_body=%uz, routed by load",
                      ctx->body.size, ctx->zone->conf.max_body);

        return NGX_HTTP_KV_ROUTER_TOO_LONG;
    }

    why = ngx_http_kv_router_body_text(r, ctx, &text);

    if (why != NGX_HTTP_KV_ROUTER_BY_POLICY) {
        return why;
    }

    if (ngx_http_kv_router_tape_room(r->connection->log, text.len,
                                     ctx->zone->conf.max_tokens)
        != NGX_OK)
    {
        return NGX_HTTP_KV_ROUTER_TOO_LONG;
    }

    if (!ctx->choice.dry) {
        ngx_http_kv_router_count(ctx->zone->run.sh, PROMPTS_SCANNED, 1);
    }

    if (kvr_tape_scan(tape, (char *) text.data, text.len) != KVR_OK) {
        ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                      "kv_router: %s at byte %uz of the body",
                      tape->error, tape->error_at);

        return NGX_HTTP_KV_ROUTER_BAD_BODY;
    }

    size = tape->n * sizeof(kvr_tape_entry_t);

    entries = ngx_http_kv_router_buffer(ctx, NGX_HTTP_KV_ROUTER_BUFFER_TAPE,
                                        size);
    if (entries == NULL) {
        return NGX_HTTP_KV_ROUTER_TOO_LONG;
    }

    ngx_memcpy(entries, tape->entries, size);

    ctx->body.tape = *tape;
    ctx->body.tape.entries = entries;

    return NGX_HTTP_KV_ROUTER_BY_POLICY;
}


/*
 * The body in one piece.  A body of one buffer in memory stays where it is,
 * others are copied.
 */

static ngx_uint_t
ngx_http_kv_router_body_text(ngx_http_request_t *r,
    ngx_http_kv_router_ctx_t *ctx, ngx_str_t *text)
{
    u_char       *p;
    size_t        len;
    ssize_t       n;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    cl = r->request_body->bufs;

    text->len = (size_t) ctx->body.size;

    if (cl->next == NULL && ngx_buf_in_memory(cl->buf)) {
        text->data = cl->buf->pos;
        return NGX_HTTP_KV_ROUTER_BY_POLICY;
    }

    p = ngx_http_kv_router_buffer(ctx, NGX_HTTP_KV_ROUTER_BUFFER_BODY,
                                  text->len);
    if (p == NULL) {
        return NGX_HTTP_KV_ROUTER_BAD_BODY;
    }

    text->data = p;

    for ( /* void */ ; cl; cl = cl->next) {

        b = cl->buf;
        len = ngx_buf_size(b);

        if (ngx_buf_in_memory(b)) {
            p = ngx_cpymem(p, b->pos, len);
            continue;
        }

        n = len ? ngx_read_file(b->file, p, len, b->file_pos) : 0;

        if (n != (ssize_t) len) {
            return NGX_HTTP_KV_ROUTER_BAD_BODY;
        }

        p += len;
    }

    return NGX_HTTP_KV_ROUTER_BY_POLICY;
}


kvr_tape_t *
ngx_http_kv_router_process_tape(size_t len, size_t max_tokens)
{
    ngx_http_kv_router_scans++;

    if (ngx_http_kv_router_tape_room(ngx_cycle->log, len, max_tokens)
        != NGX_OK)
    {
        return NULL;
    }

    return &ngx_http_kv_router_tape;
}


/* Makes room for the tape of a text of len bytes. */

static ngx_int_t
ngx_http_kv_router_tape_room(ngx_log_t *log, size_t len, size_t max_tokens)
{
    size_t             n;
    uint32_t          *ids;
    kvr_tape_t        *tape;
    kvr_tape_entry_t  *entries;

    tape = &ngx_http_kv_router_tape;

    n = ngx_min(len / 2 + 1, max_tokens);

    if (n > tape->ids_cap) {

        n = ngx_min(ngx_max(n, 65536), max_tokens);

        /* ids that begin at a cache line are hashed a tenth faster by AVX2 */

        ids = ngx_memalign(64, n * sizeof(uint32_t), log);
        if (ids == NULL) {
            return NGX_ERROR;
        }

        ngx_free(tape->ids);
        kvr_tape_init(tape, tape->entries, tape->cap, ids, n);
    }

    n = ngx_min(len / 2 + 3, NGX_HTTP_KV_ROUTER_TAPE_MAX);

    if (n > tape->cap) {

        entries = ngx_alloc(n * sizeof(kvr_tape_entry_t), log);
        if (entries == NULL) {
            return NGX_ERROR;
        }

        ngx_free(tape->entries);
        kvr_tape_init(tape, entries, (uint32_t) n, tape->ids, tape->ids_cap);
    }

    return NGX_OK;
}


size_t
ngx_http_kv_router_body_bytes(ngx_http_kv_router_ctx_t *ctx)
{
    if (ctx->body.scan
        && ngx_http_kv_router_body(ctx->request, ctx, 0)
           == NGX_HTTP_KV_ROUTER_BY_POLICY)
    {
        return kvr_prompt_bytes(&ctx->body.tape);
    }

    return (size_t) ngx_http_kv_router_body_size(ctx->request);
}


/* ---- fields ------------------------------------------------------------- */

/* The tape of a request that has been routed; NULL: none. */

static const kvr_tape_t *
ngx_http_kv_router_fields(ngx_http_request_t *r)
{
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL
        || ngx_http_kv_router_body(r, ctx, 0) != NGX_HTTP_KV_ROUTER_BY_POLICY
        || kvr_tape_kind(&ctx->body.tape, KVR_TAPE_ROOT) != KVR_TAPE_OBJECT)
    {
        return NULL;
    }

    return &ctx->body.tape;
}


static void
ngx_http_kv_router_field_text(const kvr_tape_t *tape, uint32_t i,
    const char **data, size_t *len)
{
    kvr_json_text_t  text;

    text = kvr_tape_raw(tape, i);

    *data = text.data;
    *len = text.len;
}


int
ngx_http_kv_router_ffi_field(ngx_http_request_t *r, const char *name,
    const char **data, size_t *len)
{
    uint32_t           i;
    const kvr_tape_t  *tape;

    tape = ngx_http_kv_router_fields(r);
    i = tape ? kvr_tape_get(tape, KVR_TAPE_ROOT, name) : 0;

    if (i == 0) {
        return NGX_DECLINED;
    }

    ngx_http_kv_router_field_text(tape, i, data, len);

    return NGX_OK;
}


int
ngx_http_kv_router_ffi_next_field(ngx_http_request_t *r, uint32_t *at,
    const char **name, size_t *name_len, const char **data, size_t *len)
{
    kvr_json_text_t    key;
    const kvr_tape_t  *tape;

    tape = ngx_http_kv_router_fields(r);

    if (tape == NULL) {
        return NGX_DECLINED;
    }

    *at = *at ? kvr_tape_next(tape, KVR_TAPE_ROOT, *at)
              : kvr_tape_first(tape, KVR_TAPE_ROOT);

    if (*at == 0) {
        return NGX_DECLINED;
    }

    key = kvr_tape_text(tape, *at);

    *name = key.data;
    *name_len = key.len;

    ngx_http_kv_router_field_text(tape, *at + 1, data, len);

    return NGX_OK;
}
