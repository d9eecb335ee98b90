
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Texts and the turn cache: a text is looked up before it is encoded, and an
 * entry for it is kept when its blocks were hashed.
 *
 * Only texts whose ids are believed, as the echoes have proven them or as
 * tokenizer = "local" says, are looked up and kept.  A text that the request
 * has cut (truncate_prompt_tokens), and a text around which the tokenizer adds
 * ids, are encoded as a whole.
 */


#include "ngx_http_kv_router_local.h"
#include "ngx_http_kv_router_turns.h"
#include "../request/ngx_http_kv_router_route.h"


/* scanned in one go, in less than a millisecond */
#define NGX_HTTP_KV_ROUTER_RESUME_TEXT  (1024 * 1024)
#define NGX_HTTP_KV_ROUTER_RESUME_CUTS  4096


/* of a request */

typedef struct {
    ngx_http_kv_router_known_t      known;
    kvr_turns_t                    *cache;
    kvr_turns_terms_t               terms;
    kvr_turns_entry_t               entry;     /* found */
    kvr_turns_cut_t                *cuts;
    size_t                          n;
    size_t                          shared;    /* index of a cut */
    const uint32_t                 *tokens;    /* behind the known blocks */

    struct {
        kvr_turns_cut_t            *cut;       /* NULL: none */
        uint32_t                    tokens;    /* before it */
    } keep[2];
} ngx_http_kv_router_resume_t;


static ngx_int_t ngx_http_kv_router_resume_cuts(
    ngx_http_kv_router_resume_t *s, kvr_encoder_t *encoder, const char *text,
    size_t len);
static void ngx_http_kv_router_resume_keep(ngx_http_kv_router_ctx_t *ctx);


/* Of this process, used within one call. */

static kvr_turns_cut_t  ngx_http_kv_router_resume_all[
                            NGX_HTTP_KV_ROUTER_RESUME_CUTS];


kvr_encoder_rc_t
ngx_http_kv_router_resume(ngx_http_request_t *r,
    ngx_http_kv_router_model_t *model, kvr_encoder_t *encoder,
    const char *text, size_t len, uint32_t flags)
{
    uint32_t                     *tail;
    const char                   *digest;
    ngx_http_kv_router_ctx_t     *ctx;
    ngx_http_kv_router_turns_t   *turns;
    ngx_http_kv_router_resume_t  *s;

    ctx = ngx_http_kv_router_get_ctx(r);
    turns = ctx ? ctx->zone->conf.turns : NULL;

    if (turns == NULL || !ctx->keys.believed || ctx->prompt.cut.on
        || flags || len > NGX_HTTP_KV_ROUTER_RESUME_TEXT)
    {
        return kvr_encoder_begin(encoder, text, len, flags);
    }

    ctx->prompt.known = NULL;

    s = ngx_pcalloc(r->pool, sizeof(ngx_http_kv_router_resume_t));
    if (s == NULL) {
        return KVR_ENCODER_MEMORY;
    }

    digest = kvr_model_digest(model->model);

    s->cache = &turns->cache;
    s->terms.tokenizer = kvr_hash_bytes(digest, ngx_strlen(digest), 0);
    s->terms.tables = KVR_UNICODE_TABLES;
    s->terms.contract = kvr_params_contract(&ctx->zone->conf.params);
    s->terms.seed = ctx->prompt.seed;
    s->terms.lora = ctx->prompt.view.lora;
    s->terms.lora_len = ctx->prompt.view.lora_len;
    s->terms.salt = (char *) ctx->prompt.salt.data;
    s->terms.salt_len = ctx->prompt.salt.len;

    if (ngx_http_kv_router_resume_cuts(s, encoder, text, len) != NGX_OK) {
        return kvr_encoder_begin(encoder, text, len, flags);
    }

    /* most texts have fewer ids than bytes */

    s->known.room = len / s->terms.contract.block_size + 1;
    s->known.hashes = ngx_palloc(r->pool, s->known.room * sizeof(uint64_t));

    s->cuts = ngx_palloc(r->pool, s->n * sizeof(kvr_turns_cut_t));
    tail = ngx_palloc(r->pool,
                      s->terms.contract.block_size * sizeof(uint32_t));

    if (s->known.hashes == NULL || s->cuts == NULL || tail == NULL) {
        return KVR_ENCODER_MEMORY;
    }

    ngx_memcpy(s->cuts, ngx_http_kv_router_resume_all,
               s->n * sizeof(kvr_turns_cut_t));

    (void) kvr_turns_find(s->cache, &s->terms, s->cuts, s->n, s->known.hashes,
                          s->known.room, tail, ngx_current_msec, &s->entry);

    s->shared = kvr_turns_shared(s->cuts, s->n);
    s->known.blocks = s->entry.blocks;
    s->known.done = ngx_http_kv_router_resume_keep;
    s->known.data = s;

    ctx->prompt.known = &s->known;

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "kv_router turn cache: %uD of %uz bytes are known, %uD "
                   "tokens, %uD entries", s->entry.byte, len, s->entry.tokens,
                   s->entry.tokens ? s->entry.depth + 1 : 0);

    return kvr_encoder_begin_at(encoder, text, len, s->entry.byte, tail,
                                s->entry.tail, flags);
}


/* NGX_DECLINED: there are no cuts, or too many. */

static ngx_int_t
ngx_http_kv_router_resume_cuts(ngx_http_kv_router_resume_t *s,
    kvr_encoder_t *encoder, const char *text, size_t len)
{
    size_t            at, from;
    uint64_t          seed, words[4];
    kvr_turns_cut_t  *cut;

    seed = kvr_turns_seed(s->cache);
    at = 0;
    from = 0;
    words[0] = 0;
    words[1] = 0;

    while (kvr_encoder_next_cut(encoder, text, len, &at, len)) {

        if (s->n == NGX_HTTP_KV_ROUTER_RESUME_CUTS) {
            return NGX_DECLINED;
        }

        /* a chain: what is before the last cut is in its digest */

        kvr_hash_digest(text + from, at - from, seed, &words[2]);

        cut = &ngx_http_kv_router_resume_all[s->n++];
        kvr_hash_digest(words, sizeof(words), seed, cut->digest);
        cut->byte = at;

        words[0] = cut->digest[0];
        words[1] = cut->digest[1];
        from = at;
    }

    return s->n ? NGX_OK : NGX_DECLINED;
}


void
ngx_http_kv_router_resumed(ngx_http_request_t *r, kvr_encoder_t *encoder,
    const uint32_t *ids)
{
    size_t                        i, k, ncuts;
    ngx_http_kv_router_ctx_t     *ctx;
    const kvr_encoder_cut_t      *cuts;
    ngx_http_kv_router_resume_t  *s;

    ctx = ngx_http_kv_router_get_ctx(r);

    if (ctx == NULL || ctx->prompt.known == NULL) {
        return;
    }

    s = ctx->prompt.known->data;

    s->tokens = ids;
    s->known.tokens = ids;

    /* the shared cut, if nothing was known, and the last one */

    cuts = kvr_encoder_cuts(encoder, &ncuts);

    for (i = 0, k = 0; i < ncuts; i++) {

        while (k < s->n && s->cuts[k].byte < cuts[i].byte) {
            k++;
        }

        if (k == s->n || s->cuts[k].byte != cuts[i].byte) {
            continue;
        }

        if (k == s->n - 1) {
            s->keep[1].cut = &s->cuts[k];
            s->keep[1].tokens = s->entry.tokens + cuts[i].ids;

        } else if (k == s->shared && s->entry.tokens == 0) {
            s->keep[0].cut = &s->cuts[k];
            s->keep[0].tokens = cuts[i].ids;
        }
    }
}


static void
ngx_http_kv_router_resume_keep(ngx_http_kv_router_ctx_t *ctx)
{
    size_t                        blocks;
    ngx_uint_t                    i;
    kvr_turns_entry_t             entry;
    ngx_http_kv_router_resume_t  *s;

    s = ctx->prompt.known->data;
    entry = s->entry;

    for (i = 0; i < 2; i++) {

        if (s->keep[i].cut == NULL) {
            continue;
        }

        blocks = kvr_contract_blocks(s->terms.contract, s->keep[i].tokens);

        (void) kvr_turns_keep(s->cache, &s->terms, s->keep[i].cut,
                              s->keep[i].tokens, ctx->keys.ids.hash,
                              s->tokens + (blocks - s->entry.blocks)
                                          * s->terms.contract.block_size,
                              ngx_current_msec, &entry);
    }
}
