
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The rung "local": models of zones, and texts that are encoded in slices.
 */


#ifndef _NGX_HTTP_KV_ROUTER_LOCAL_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_LOCAL_H_INCLUDED_


#include "../module/ngx_http_kv_router_module.h"

#include <model/kvr_model.h>
#include <token/kvr_encoder.h>
#include <token/kvr_text.h>
#include <wire/kvr_tape.h>


#define NGX_HTTP_KV_ROUTER_MODEL_WHY  256   /* bytes of a sentence */


/*
 * A zone's model as one process knows it.  The model itself is made in the
 * master, and shared with the processes that are forked.
 */

struct ngx_http_kv_router_model_s {
    ngx_str_t                       dir;
    kvr_model_t                    *model;
    kvr_pieces_t                   *pieces;    /* of this process; NULL */

    /* as Lua says: of what was made of the chat template; "": nothing yet */
    char                            template_why[
                                        NGX_HTTP_KV_ROUTER_MODEL_WHY];
    ngx_uint_t                      refused;   /* Lua refuses the template */
    ngx_uint_t                      ready;     /* Lua takes it */
};


/* Encoders that were made for the zone's tokenizer are freed. */
void ngx_http_kv_router_encode_forget(ngx_http_kv_router_model_t *model);


/*
 * Begins a text of a request: at the deepest cut that the turn cache knows, or
 * else at the text's start.
 */
kvr_encoder_rc_t ngx_http_kv_router_resume(ngx_http_request_t *r,
    ngx_http_kv_router_model_t *model, kvr_encoder_t *encoder,
    const char *text, size_t len, uint32_t flags);

/* The text is encoded to these ids, which are behind the known blocks. */
void ngx_http_kv_router_resumed(ngx_http_request_t *r,
    kvr_encoder_t *encoder, const uint32_t *ids);


/*
 * ---- for Lua: resty.kv_router.tokens.model_ffi declares the same -----------
 */

/*
 * The model of the zone of that name, in the configuration that is being read,
 * or else in the one that is in force; NULL: none.  Any phase, and before the
 * processes are.
 */
kvr_model_t *ngx_http_kv_router_ffi_model(const u_char *name, size_t len);

/* Lua tells what it made of the chat template: "": all is well. */
void ngx_http_kv_router_ffi_model_state(const u_char *name, size_t len,
    const char *why);


#define NGX_HTTP_KV_ROUTER_ENCODE_TEXTS  8  /* at a time, of a process */
#define NGX_HTTP_KV_ROUTER_ENCODE_MAX    16 /* and those without a text */

/*
 * Semaphores that Lua waits on, one for each encoding, and the function by
 * which C posts them: ngx_http_lua_ffi_sema_post().  All must stay as long as
 * the process.
 */
typedef int (*ngx_http_kv_router_post_pt)(void *semaphore, int n);

void ngx_http_kv_router_ffi_encode_init(ngx_http_kv_router_post_pt post,
    void **semaphores);

/*
 * Begins an encoding for a request: its number, below …_ENCODE_MAX, and an
 * empty text of at most bound bytes to be filled.  A bound of 0: a place which
 * is only to be paused.  It ends by …_encode_drop(),
 * or with the request's pool.  NGX_BUSY: there are as many as there may be, or
 * their texts may have too many bytes.  NGX_ERROR: no memory.
 */
int ngx_http_kv_router_ffi_encode_take(ngx_http_request_t *r, void *zone,
    size_t bound, kvr_text_t **text);

/*
 * Waits until a turn of the event loop is this encoding's, as if it had a
 * slice; the encoding's semaphore is posted then.  Nothing is encoded.
 */
void ngx_http_kv_router_ffi_encode_pause(int number);

/*
 * The text is complete: encodes it, and returns a kvr_encoder_rc_t.  If it is
 * KVR_ENCODER_AGAIN, the encoding's semaphore is posted at the end, and
 * …_encode_ids() returns what became of it.
 */
int ngx_http_kv_router_ffi_encode_run(int number, uint32_t flags);

/* The ids, which are good until the encoding is dropped. */
int ngx_http_kv_router_ffi_encode_ids(int number, const uint32_t **ids,
    size_t *n);

void ngx_http_kv_router_ffi_encode_drop(int number);

/*
 * The tape of the body of a request whose prompt was looked for; good as long
 * as the request.  NULL: it can't be read.
 */
const kvr_tape_t *ngx_http_kv_router_ffi_body_tape(ngx_http_request_t *r);


#endif /* _NGX_HTTP_KV_ROUTER_LOCAL_H_INCLUDED_ */
