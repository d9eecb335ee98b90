
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Texts are encoded in slices, so that no text stops the event loop: one slice
 * in a turn of the loop, whatever the number of texts.  They stand in one
 * queue of the process, and the first one has the slice.  Lua reads a long
 * body, makes its text and sends it in several steps, and waits in the same
 * queue before each of them.
 *
 *     …_take()  a place, with a text that Lua fills
 *     …_pause() the next slice of this text is Lua's
 *     …_run()   the first slice now, if this turn had none; the others by an
 *               event that is posted for the next turn
 *     …_ids()
 *     …_drop()  or the end of the request's pool: the place is free again
 *
 * A place belongs to its request.  A request that ends, in whatever way, takes
 * its text out of the queue.
 */


#include "ngx_http_kv_router_local.h"
#include "../request/ngx_http_kv_router_route.h"


#define NGX_HTTP_KV_ROUTER_ENCODE_SLICE  200000             /* ns */
#define NGX_HTTP_KV_ROUTER_ENCODE_BYTES  (64 * 1024 * 1024) /* of all texts */


typedef enum {
    NGX_HTTP_KV_ROUTER_ENCODE_FREE = 0,
    NGX_HTTP_KV_ROUTER_ENCODE_TAKEN,
    NGX_HTTP_KV_ROUTER_ENCODE_QUEUED,
    NGX_HTTP_KV_ROUTER_ENCODE_ENDED
} ngx_http_kv_router_encode_e;


typedef struct {
    ngx_queue_t                     queue;     /* while queued */
    ngx_http_kv_router_encode_e     state;
    ngx_http_request_t             *request;
    ngx_http_kv_router_zone_t      *zone;
    ngx_http_kv_router_model_t     *model;     /* of the encoder */
    kvr_encoder_t                  *encoder;   /* reused */
    kvr_encoder_rc_t                rc;
    kvr_text_t                      text;      /* likewise */
    size_t                          bound;
    uint32_t                        use;       /* each has a number */
    ngx_uint_t                      paused;    /* in the queue, for Lua */
} ngx_http_kv_router_encode_t;


/* the data of a cleanup of a request's pool */

typedef struct {
    ngx_http_kv_router_encode_t    *encode;
    uint32_t                        use;
} ngx_http_kv_router_encode_end_t;


static ngx_int_t ngx_http_kv_router_encode_ready(
    ngx_http_kv_router_encode_t *e);
static void ngx_http_kv_router_encode_slice(ngx_http_kv_router_encode_t *e);
static void ngx_http_kv_router_encode_sliced(ngx_http_kv_router_encode_t *e);
static void ngx_http_kv_router_encode_turn(ngx_event_t *ev);
static void ngx_http_kv_router_encode_next_turn(void);
static void ngx_http_kv_router_encode_cleanup(void *data);
static void ngx_http_kv_router_encode_free(ngx_http_kv_router_encode_t *e);
static ngx_http_kv_router_encode_t *ngx_http_kv_router_encode_at(int number);


/* Of this process. */

static struct {
    ngx_http_kv_router_encode_t     all[NGX_HTTP_KV_ROUTER_ENCODE_MAX];
    ngx_queue_t                     queue;
    size_t                          bytes;     /* bounds of the texts taken */
    ngx_event_t                     turn;
    ngx_uint_t                      sliced;    /* this turn had its slice */
    ngx_http_kv_router_post_pt      post;
    void                           *semaphores[NGX_HTTP_KV_ROUTER_ENCODE_MAX];
} ngx_http_kv_router_encodes;


void
ngx_http_kv_router_ffi_encode_init(ngx_http_kv_router_post_pt post,
    void **semaphores)
{
    ngx_event_t  *ev;

    ngx_http_kv_router_encodes.post = post;
    ngx_memcpy(ngx_http_kv_router_encodes.semaphores, semaphores,
               sizeof(ngx_http_kv_router_encodes.semaphores));

    ev = &ngx_http_kv_router_encodes.turn;

    if (ev->handler == NULL) {
        ngx_queue_init(&ngx_http_kv_router_encodes.queue);

        ev->handler = ngx_http_kv_router_encode_turn;
        ev->log = ngx_cycle->log;
    }
}


const kvr_tape_t *
ngx_http_kv_router_ffi_body_tape(ngx_http_request_t *r)
{
    uint32_t                  *ids;
    kvr_tape_t                *tape;
    ngx_http_kv_router_ctx_t  *ctx;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || !ctx->prompt.prompted
        || ngx_http_kv_router_body(r, ctx, 0) != NGX_HTTP_KV_ROUTER_BY_POLICY)
    {
        return NULL;
    }

    tape = &ctx->body.tape;

    if (tape->nids == 0) {
        return tape;
    }

    /* the next body is scanned into the same array of ids */

    if (ngx_http_kv_router_body(r, ctx, 1) != NGX_HTTP_KV_ROUTER_BY_POLICY) {
        return NULL;
    }

    ids = ngx_palloc(r->pool, tape->nids * sizeof(uint32_t));
    if (ids == NULL) {
        return NULL;
    }

    ngx_memcpy(ids, tape->ids, tape->nids * sizeof(uint32_t));
    tape->ids = ids;

    return tape;
}


int
ngx_http_kv_router_ffi_encode_take(ngx_http_request_t *r, void *data,
    size_t bound, kvr_text_t **text)
{
    ngx_http_kv_router_zone_t *zone = data;

    int                               i, last;
    ngx_pool_cleanup_t               *cln;
    ngx_http_kv_router_encode_t      *e;
    ngx_http_kv_router_encode_end_t  *end;

    i = bound ? 0 : NGX_HTTP_KV_ROUTER_ENCODE_TEXTS;
    last = bound ? NGX_HTTP_KV_ROUTER_ENCODE_TEXTS
                 : NGX_HTTP_KV_ROUTER_ENCODE_MAX;

    for ( /* void */ ; i < last; i++) {
        e = &ngx_http_kv_router_encodes.all[i];

        if (e->state == NGX_HTTP_KV_ROUTER_ENCODE_FREE) {
            break;
        }
    }

    if (i == last
        || bound > NGX_HTTP_KV_ROUTER_ENCODE_BYTES
                   - ngx_http_kv_router_encodes.bytes)
    {
        return NGX_BUSY;
    }

    cln = ngx_pool_cleanup_add(r->pool,
                               sizeof(ngx_http_kv_router_encode_end_t));
    if (cln == NULL) {
        return NGX_ERROR;
    }

    e->request = r;
    e->zone = zone;
    e->state = NGX_HTTP_KV_ROUTER_ENCODE_TAKEN;
    e->bound = bound;
    e->use++;

    kvr_text_reset(&e->text, bound);
    ngx_http_kv_router_encodes.bytes += bound;

    end = cln->data;
    end->encode = e;
    end->use = e->use;

    cln->handler = ngx_http_kv_router_encode_cleanup;

    *text = &e->text;

    return i;
}


void
ngx_http_kv_router_ffi_encode_pause(int number)
{
    ngx_http_kv_router_encode_t  *e;

    e = ngx_http_kv_router_encode_at(number);

    if (e == NULL || e->paused
        || e->state == NGX_HTTP_KV_ROUTER_ENCODE_FREE
        || e->state == NGX_HTTP_KV_ROUTER_ENCODE_QUEUED)
    {
        return;
    }

    e->paused = 1;

    ngx_queue_insert_tail(&ngx_http_kv_router_encodes.queue, &e->queue);
    ngx_http_kv_router_encode_next_turn();
}


int
ngx_http_kv_router_ffi_encode_run(int number, uint32_t flags)
{
    ngx_http_kv_router_encode_t  *e;

    e = ngx_http_kv_router_encode_at(number);

    if (e == NULL || e->state != NGX_HTTP_KV_ROUTER_ENCODE_TAKEN) {
        return KVR_ENCODER_MEMORY;
    }

    if (ngx_http_kv_router_encode_ready(e) != NGX_OK) {
        return KVR_ENCODER_MEMORY;
    }

    e->rc = ngx_http_kv_router_resume(e->request, e->model, e->encoder,
                                      e->text.data ? e->text.data : "",
                                      e->text.len, flags);

    if (e->rc == KVR_ENCODER_AGAIN
        && !ngx_http_kv_router_encodes.sliced
        && ngx_queue_empty(&ngx_http_kv_router_encodes.queue))
    {
        ngx_http_kv_router_encode_slice(e);
    }

    if (e->rc != KVR_ENCODER_AGAIN) {
        e->state = NGX_HTTP_KV_ROUTER_ENCODE_ENDED;
        return e->rc;
    }

    e->state = NGX_HTTP_KV_ROUTER_ENCODE_QUEUED;
    ngx_queue_insert_tail(&ngx_http_kv_router_encodes.queue, &e->queue);
    ngx_http_kv_router_encode_next_turn();

    return KVR_ENCODER_AGAIN;
}


/* An encoder for the zone's tokenizer. */

static ngx_int_t
ngx_http_kv_router_encode_ready(ngx_http_kv_router_encode_t *e)
{
    ngx_http_kv_router_model_t  *model;

    model = e->zone->conf.model;

    if (e->model == model && e->encoder) {
        return NGX_OK;
    }

    kvr_encoder_free(e->encoder);
    e->encoder = NULL;
    e->model = model;

    /* without its cache of pieces an encoder is slower, and as right */

    if (model->pieces == NULL) {
        model->pieces = kvr_pieces_new(KVR_PIECES_SLOTS);
    }

    e->encoder = kvr_encoder_new(kvr_model_tokenizer(model->model),
                                 model->pieces, NULL);

    return e->encoder ? NGX_OK : NGX_ERROR;
}


static void
ngx_http_kv_router_encode_slice(ngx_http_kv_router_encode_t *e)
{
    e->rc = kvr_encoder_step(e->encoder, NGX_HTTP_KV_ROUTER_ENCODE_SLICE);

    ngx_http_kv_router_encode_sliced(e);
}


static void
ngx_http_kv_router_encode_sliced(ngx_http_kv_router_encode_t *e)
{
    ngx_http_kv_router_count(e->zone->run.sh, LOCAL_SLICES, 1);

    /* the event ends this turn, even if nobody waits for a slice then */

    ngx_http_kv_router_encodes.sliced = 1;
    ngx_http_kv_router_encode_next_turn();
}


/* A turn of the event loop begins. */

static void
ngx_http_kv_router_encode_turn(ngx_event_t *ev)
{
    ngx_queue_t                  *q;
    ngx_http_kv_router_encode_t  *e;

    ngx_http_kv_router_encodes.sliced = 0;

    if (ngx_queue_empty(&ngx_http_kv_router_encodes.queue)) {
        return;
    }

    q = ngx_queue_head(&ngx_http_kv_router_encodes.queue);
    e = ngx_queue_data(q, ngx_http_kv_router_encode_t, queue);

    ngx_queue_remove(q);

    if (e->paused) {
        e->paused = 0;
        ngx_http_kv_router_encode_sliced(e);

    } else {
        ngx_http_kv_router_encode_slice(e);

        if (e->rc == KVR_ENCODER_AGAIN) {
            ngx_queue_insert_tail(&ngx_http_kv_router_encodes.queue, q);
            return;
        }

        e->state = NGX_HTTP_KV_ROUTER_ENCODE_ENDED;
    }

    (void) ngx_http_kv_router_encodes.post(
               ngx_http_kv_router_encodes.semaphores[
                   e - ngx_http_kv_router_encodes.all], 1);
}


static void
ngx_http_kv_router_encode_next_turn(void)
{
    ngx_post_event(&ngx_http_kv_router_encodes.turn,
                   &ngx_posted_next_events);
}


int
ngx_http_kv_router_ffi_encode_ids(int number, const uint32_t **ids, size_t *n)
{
    ngx_http_kv_router_encode_t  *e;

    e = ngx_http_kv_router_encode_at(number);

    if (e == NULL || e->state != NGX_HTTP_KV_ROUTER_ENCODE_ENDED) {
        return KVR_ENCODER_AGAIN;
    }

    if (e->rc == KVR_ENCODER_DONE) {
        *ids = kvr_encoder_ids(e->encoder, n);
        ngx_http_kv_router_resumed(e->request, e->encoder, *ids);
    }

    return e->rc;
}


void
ngx_http_kv_router_ffi_encode_drop(int number)
{
    ngx_http_kv_router_encode_t  *e;

    e = ngx_http_kv_router_encode_at(number);

    if (e) {
        ngx_http_kv_router_encode_free(e);
    }
}


static void
ngx_http_kv_router_encode_cleanup(void *data)
{
    ngx_http_kv_router_encode_end_t  *end = data;

    if (end->encode->use == end->use) {
        ngx_http_kv_router_encode_free(end->encode);
    }
}


static void
ngx_http_kv_router_encode_free(ngx_http_kv_router_encode_t *e)
{
    if (e->state == NGX_HTTP_KV_ROUTER_ENCODE_FREE) {
        return;
    }

    if (e->state == NGX_HTTP_KV_ROUTER_ENCODE_QUEUED || e->paused) {
        ngx_queue_remove(&e->queue);
    }

    e->state = NGX_HTTP_KV_ROUTER_ENCODE_FREE;
    e->paused = 0;
    ngx_http_kv_router_encodes.bytes -= e->bound;
}


static ngx_http_kv_router_encode_t *
ngx_http_kv_router_encode_at(int number)
{
    if (number < 0 || number >= NGX_HTTP_KV_ROUTER_ENCODE_MAX) {
        return NULL;
    }

    return &ngx_http_kv_router_encodes.all[number];
}


void
ngx_http_kv_router_encode_forget(ngx_http_kv_router_model_t *model)
{
    ngx_uint_t                    i;
    ngx_http_kv_router_encode_t  *e;

    for (i = 0; i < NGX_HTTP_KV_ROUTER_ENCODE_MAX; i++) {
        e = &ngx_http_kv_router_encodes.all[i];

        if (e->model == model) {
            ngx_http_kv_router_encode_free(e);

            kvr_encoder_free(e->encoder);
            e->encoder = NULL;
            e->model = NULL;
        }
    }
}
