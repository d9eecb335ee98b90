
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Rounds: what this process does for each worker now and then, as a check, a
 * scrape, a probe, or the lookup of a host name.
 *
 * Every process looks which workers are due.  The worker's kvr_due_t in shared
 * memory decides which process goes on, so that all workers have their turn
 * even if a process dies.
 */


#ifndef _NGX_HTTP_KV_ROUTER_ROUNDS_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_ROUNDS_H_INCLUDED_


#include "../request/ngx_http_kv_router_route.h"
#include "ngx_http_kv_router_client.h"


/* the turn of a worker; the first member of what a kind has of it */

typedef struct {
    ngx_http_kv_router_rounds_t    *rounds;    /* NULL: free */
    ngx_http_kv_router_zone_t      *zone;
    ngx_http_kv_router_client_t    *client;    /* NULL: none runs */
    uint32_t                        number;    /* of the worker */
    uint32_t                        generation;
    ngx_str_t                       id;        /* both end with a null */
    ngx_str_t                       address;
    u_char                          id_data[KVR_WORKER_ID_MAX + 1];
    u_char                          address_data[KVR_ADDRESS_MAX + 1];
    u_char                          why[sizeof("status 4294967295, not 200")];
} ngx_http_kv_router_slot_t;


typedef struct {
    ngx_uint_t                      index;     /* in zone->rounds */
    ngx_uint_t                      slots;     /* at a time, of a process */
    size_t                          size;      /* of a slot */
    ngx_msec_t                      tick;      /* ms, and as much jitter */
    ngx_uint_t                      level;     /* nginx would log each
                                                  connection that fails: up to
                                                  this level it does */
    ngx_uint_t                      named;     /* the workers with names */

    ngx_uint_t                    (*wanted)(ngx_http_kv_router_zone_t *zone);
    /* 1: the turn was taken for this process */
    ngx_uint_t                    (*due)(ngx_http_kv_router_zone_t *zone,
                                         ngx_http_kv_router_holder_t *h);
    /* must set slot->rounds to NULL in the end; all but *slot is zero */
    void                          (*start)(ngx_http_kv_router_slot_t *slot);
    /* this process ends; NULL: the client is all that runs */
    void                          (*stop)(ngx_http_kv_router_slot_t *slot);
} ngx_http_kv_router_rounds_kind_t;


extern const ngx_http_kv_router_rounds_kind_t  ngx_http_kv_router_checks;
extern const ngx_http_kv_router_rounds_kind_t  ngx_http_kv_router_scrapes;
extern const ngx_http_kv_router_rounds_kind_t  ngx_http_kv_router_probes;
extern const ngx_http_kv_router_rounds_kind_t  ngx_http_kv_router_lookups;


/*
 * This process begins the rounds of a kind, if it has not yet.  NGX_ERROR: no
 * memory.
 */
ngx_int_t ngx_http_kv_router_rounds_begin(ngx_cycle_t *cycle,
    ngx_http_kv_router_zone_t *zone,
    const ngx_http_kv_router_rounds_kind_t *kind);

/*
 * Asks the worker of a slot, see ngx_http_kv_router_client_ask(); the handler
 * gets the slot as its data, and must set slot->client to NULL.
 */
ngx_int_t ngx_http_kv_router_slot_ask(ngx_http_kv_router_slot_t *slot,
    ngx_str_t *uri, ngx_str_t *body, ngx_msec_t timeout, size_t max,
    ngx_http_kv_router_client_pt handler, const char **why);

/* Why an answer is not good, which lasts as long as the slot; NULL: it is. */
const char *ngx_http_kv_router_slot_status(ngx_http_kv_router_slot_t *slot,
    const kvr_http_answer_t *answer);

/* 0: another worker has the number by now. */
ngx_uint_t ngx_http_kv_router_slot_current(ngx_http_kv_router_slot_t *slot);

/*
 * An interval that is up to a tenth shorter or longer, so that the turns of
 * all workers do not come at once.
 */
ngx_msec_t ngx_http_kv_router_rounds_apart(ngx_msec_t interval);

/*
 * The names of resolve=all: this process begins to look at them, and ends.
 * NGX_ERROR: no memory.
 */
ngx_int_t ngx_http_kv_router_named_start(ngx_cycle_t *cycle,
    ngx_http_kv_router_zone_t *zone);
void ngx_http_kv_router_named_stop(ngx_http_kv_router_zone_t *zone);


#endif /* _NGX_HTTP_KV_ROUTER_ROUNDS_H_INCLUDED_ */
