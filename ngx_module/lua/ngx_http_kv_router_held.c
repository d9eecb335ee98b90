
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What requests hold of their process while their coroutines wait: a place in
 * a queue, a count.  The coroutine of a request that ends meanwhile is killed,
 * and can give nothing back.  The cleanup of the request's pool then notes
 * what was held, for Lua to take it back, and wakes a coroutine that waits.
 */


#include "../module/ngx_http_kv_router_ffi.h"


typedef struct {
    ngx_queue_t                     queue;      /* of those that have ended */
    ngx_pool_cleanup_t             *cleanup;
    void                           *semaphore;
    ngx_http_kv_router_sem_post_pt  post;
    uint32_t                        number;
} ngx_http_kv_router_hold_t;


static void ngx_http_kv_router_hold_cleanup(void *data);


/* Holds of requests that have ended; empty before the first one. */

static ngx_queue_t  ngx_http_kv_router_ended;


void *
ngx_http_kv_router_ffi_hold(ngx_http_request_t *r, uint32_t number,
    ngx_http_kv_router_sem_post_pt post)
{
    ngx_http_kv_router_hold_t  *hold;

    hold = ngx_calloc(sizeof(ngx_http_kv_router_hold_t), r->connection->log);
    if (hold == NULL) {
        return NULL;
    }

    hold->cleanup = ngx_pool_cleanup_add(r->pool, 0);
    if (hold->cleanup == NULL) {
        ngx_free(hold);
        return NULL;
    }

    hold->cleanup->handler = ngx_http_kv_router_hold_cleanup;
    hold->cleanup->data = hold;
    hold->number = number;
    hold->post = post;

    return hold;
}


void
ngx_http_kv_router_ffi_hold_wakes(void *data, void *semaphore)
{
    ngx_http_kv_router_hold_t *hold = data;

    hold->semaphore = semaphore;
}


void
ngx_http_kv_router_ffi_hold_given(void *data)
{
    ngx_http_kv_router_hold_t *hold = data;

    hold->cleanup->handler = NULL;
    ngx_free(hold);
}


uint32_t
ngx_http_kv_router_ffi_hold_ended(void)
{
    uint32_t                    number;
    ngx_queue_t                *q;
    ngx_http_kv_router_hold_t  *hold;

    if (ngx_http_kv_router_ended.next == NULL
        || ngx_queue_empty(&ngx_http_kv_router_ended))
    {
        return 0;
    }

    q = ngx_queue_head(&ngx_http_kv_router_ended);
    hold = ngx_queue_data(q, ngx_http_kv_router_hold_t, queue);
    number = hold->number;

    ngx_queue_remove(q);
    ngx_free(hold);

    return number;
}


static void
ngx_http_kv_router_hold_cleanup(void *data)
{
    ngx_http_kv_router_hold_t *hold = data;

    if (ngx_http_kv_router_ended.next == NULL) {
        ngx_queue_init(&ngx_http_kv_router_ended);
    }

    ngx_queue_insert_tail(&ngx_http_kv_router_ended, &hold->queue);

    if (hold->semaphore) {
        (void) hold->post(hold->semaphore, 1);
    }
}
