/*
 * Copyright (C) the nginx-kv-router authors
 *
 * An engine's events for the tests: into one zone by kvr_normalise_event(),
 * and what that emits into another, which has to answer the same.
 *
 *     engine_open(&kinds[0], true, 0);
 *     stored(0, "10 11", "ab", KVR_DEVICE);    a chain from the root
 *     removed("11", KVR_DEVICE);
 *     has("ab", 1, 1, 1, "…");
 *     engine_close();
 *
 * A letter is a block's content, a number a handle.
 */


#ifndef ENGINE_H_INCLUDED
#define ENGINE_H_INCLUDED


#include "kinds.h"
#include "normalise/kvr_normalise.h"
#include "pack.h"
#include "tap.h"


#define ENGINE_BLOCKS    64             /* of an event, or a prompt */
#define ENGINE_SIZE_MAX  8              /* tokens of an engine's block */


typedef struct {
    kvr_router_t    router;
    void           *base;
    size_t          size;
} engine_zone_t;


static engine_zone_t   near_zone;       /* beside the engine */
static engine_zone_t   far_zone;        /* what hears of it */
static kvr_normaliser_t   *engine;
static kvr_decoder_t  *engine_decoder;
static uint32_t        engine_size;     /* tokens of the engine's blocks */
static uint32_t        engine_rank;
static kvr_rc_t        engine_rc;       /* of the last event */
static kvr_why_t       engine_why;
static uint32_t        emitted;         /* events, of the last one */
static bool            emission_fits;   /* all were taken by the far zone */


static inline void
engine_zone_open(engine_zone_t *z, const kind_t *of, size_t size)
{
    z->size = size;
    z->base = router_open(&z->router, &of->params, size);

    if (router_put(&z->router, "w", "", 2, KVR_WORKER_API) != KVR_OK) {
        printf("Bail out! no worker\n");
        exit(1);
    }
}


static inline void
engine_zone_close(engine_zone_t *z)
{
    router_close(&z->router, z->base, z->size);
}


/* blocks: what the engine's memory holds; 0: the usual. */
static inline void
engine_open_sized(const kind_t *of, bool counting, uint32_t blocks,
    size_t size)
{
    kvr_normalise_conf_t  conf = { counting, blocks };

    engine_zone_open(&near_zone, of, size);
    engine_zone_open(&far_zone, of, 16 << 20);

    engine = kvr_normalise_create(&near_zone.router, &conf);
    engine_decoder = kvr_decoder_create();
    engine_size = of->params.block_size;
    engine_rank = 0;
    emission_fits = true;
}


static inline void
engine_open(const kind_t *of, bool counting, uint32_t blocks)
{
    engine_open_sized(of, counting, blocks, 16 << 20);
}


static inline void
engine_close(void)
{
    kvr_normalise_destroy(engine);
    kvr_decoder_destroy(engine_decoder);
    engine_zone_close(&near_zone);
    engine_zone_close(&far_zone);
}


static inline void
engine_hear(void *data, const kvr_change_t *c)
{
    uint32_t      unknown;
    kvr_rc_t      rc;
    kvr_why_t     why;
    kvr_event_t   ev;
    const char   *detail;

    emitted++;

    memset(&ev, 0, sizeof(kvr_event_t));
    ev.change = *c;

    rc = kvr_router_write(&far_zone.router, "w", 1, &ev, 1000, &unknown, &why,
                          &detail);

    if (rc != KVR_OK || (c->kind == KVR_STORE && unknown)) {
        note("not taken: kind %d, %u handles from %llu on: %d, %s", c->kind,
             c->nhandles, (unsigned long long) c->handles[0], rc, detail);
        emission_fits = false;
    }
}


static inline kvr_rc_t
engine_tell(const kvr_event_t *ev)
{
    emitted = 0;
    engine_rc = kvr_normalise_event(engine, "w", 1, ev, &engine_why,
                                    engine_hear, NULL);

    return engine_rc;
}


/* ---- events by hand ----------------------------------------------------- */

static inline uint32_t
engine_numbers(const char *text, uint64_t *out)
{
    char      *end;
    uint32_t   n;

    for (n = 0; n < ENGINE_BLOCKS; n++, text = end) {
        out[n] = strtoull(text, &end, 10);

        if (end == text) {
            break;
        }
    }

    return n;
}


static inline void
engine_tokens(const char *letters, uint32_t n, uint32_t *out)
{
    uint32_t  i;

    for (i = 0; i < n * engine_size; i++) {
        out[i] = (uint32_t) letters[i / engine_size];
    }
}


/* parent 0: from the root. */
static inline kvr_rc_t
stored_at(uint64_t parent, const uint64_t *handles, const char *letters,
    uint32_t n, kvr_tier_t tier)
{
    uint32_t     tokens[ENGINE_BLOCKS * ENGINE_SIZE_MAX];
    kvr_event_t  ev;

    engine_tokens(letters, n, tokens);

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_STORE;
    ev.rank = engine_rank;
    ev.tier = tier;
    ev.has_parent = parent != 0;
    ev.parent = parent;
    ev.handles = handles;
    ev.nhandles = n;
    ev.tokens = tokens;
    ev.ntokens = n * engine_size;
    ev.block_size = engine_size;

    return engine_tell(&ev);
}


static inline kvr_rc_t
stored(uint64_t parent, const char *handles, const char *letters,
    kvr_tier_t tier)
{
    uint64_t  numbers[ENGINE_BLOCKS];

    return stored_at(parent, numbers, letters,
                     engine_numbers(handles, numbers), tier);
}


static inline kvr_rc_t
engine_say(kvr_event_kind_t kind, const char *handles, kvr_tier_t tier)
{
    uint64_t     numbers[ENGINE_BLOCKS];
    kvr_event_t  ev;

    memset(&ev, 0, sizeof(ev));
    ev.kind = kind;
    ev.rank = engine_rank;
    ev.tier = tier;
    ev.handles = numbers;
    ev.nhandles = engine_numbers(handles, numbers);

    return engine_tell(&ev);
}


#define removed(handles, tier)    engine_say(KVR_REMOVE, handles, tier)
#define offloaded(handles, tier)  engine_say(KVR_STORE, handles, tier)
#define cleared()                 engine_say(KVR_CLEAR, "", KVR_DEVICE)


/* One event of an engine's batch, as the decoder reads it. */
static inline kvr_rc_t
published(const char *json)
{
    char           text[2048];
    uint8_t        bytes[4096];
    size_t         len;
    kvr_why_t      why;
    kvr_event_t    ev;
    const char    *detail;
    kvr_message_t  msg;

    snprintf(text, sizeof(text), "[1.5, [%s]]", json);
    len = pack(bytes, sizeof(bytes), text);

    if (kvr_message_open(engine_decoder, bytes, len, &msg, &why, &detail)
        != KVR_OK || kvr_decoder_next(engine_decoder, &ev) != KVR_OK)
    {
        return KVR_ERROR;
    }

    ev.rank = engine_rank;

    return engine_tell(&ev);
}


/* ---- what is held ------------------------------------------------------- */

static inline uint32_t
engine_locals(const char *letters, uint64_t *out)
{
    uint32_t      n, size;
    uint32_t      tokens[ENGINE_BLOCKS * ENGINE_SIZE_MAX];
    kvr_hasher_t  hasher;

    n = (uint32_t) strlen(letters);
    size = near_zone.router.zone ? kvr_router_params(&near_zone.router)
                                   ->block_size : 1;

    engine_tokens(letters, n, tokens);

    hasher.ready = false;
    kvr_hasher_init(&hasher, KVR_HASH_SEED);

    return (uint32_t) kvr_hash_blocks(&hasher, tokens, n * engine_size, size,
                                      out);
}


static inline kvr_match_t
engine_found(const engine_zone_t *z, const uint64_t *locals, uint32_t n)
{
    uint32_t     i, found, w, holder;
    kvr_match_t  none, all[64];

    memset(&none, 0, sizeof(none));
    found = kvr_router_find(&z->router, locals, n,
                            (uint64_t) n * engine_size + 1, false, all, 64);

    if (kvr_router_find_worker(&z->router, "w", 1, &w) != KVR_OK
        || kvr_router_find_holder(&z->router, w, engine_rank, &holder)
           != KVR_OK)
    {
        return none;
    }

    for (i = 0; i < found; i++) {
        if (all[i].holder == holder) {
            return all[i];
        }
    }

    return none;
}


static inline bool
engine_has(const char *letters, uint32_t device, uint32_t host, uint32_t disk)
{
    uint32_t     n;
    uint64_t     locals[ENGINE_BLOCKS * ENGINE_SIZE_MAX];
    kvr_match_t  a, b;

    n = engine_locals(letters, locals);
    a = engine_found(&near_zone, locals, n);
    b = engine_found(&far_zone, locals, n);

    if (a.device != device || a.host != host || a.disk != disk
        || b.device != device || b.host != host || b.disk != disk)
    {
        note("%s: want %u %u %u, here %u %u %u, there %u %u %u", letters,
             device, host, disk, a.device, a.host, a.disk, b.device, b.host,
             b.disk);
        return false;
    }

    return true;
}


#define has(letters, device, host, disk, ...)                                 \
    ok(engine_has(letters, device, host, disk), __VA_ARGS__)


static inline uint64_t
engine_counted(kvr_why_t why)
{
    uint32_t  w;

    if (kvr_router_find_worker(&near_zone.router, "w", 1, &w) != KVR_OK) {
        return 0;
    }

    return kvr_router_worker(&near_zone.router, w)->counters.why[why];
}


static inline uint32_t
engine_flags(void)
{
    uint32_t           w, flags, generation;
    kvr_worker_conf_t  conf;

    if (kvr_router_find_worker(&near_zone.router, "w", 1, &w) != KVR_OK
        || kvr_router_read_worker(&near_zone.router, w, &conf, &flags,
                                  &generation) != KVR_OK)
    {
        return 0;
    }

    return flags;
}


#endif /* ENGINE_H_INCLUDED */
