
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_roll_member.h"

#include <stdlib.h>


/* milliseconds between the beginnings of two polls at least */
#define KVR_ROLL_SOON      500

/* the number of polls in a row that must miss a worker before it is removed */
#define KVR_ROLL_ABSENCES  2

/*
 * ids that SSCAN is asked for at once; the maximum number of pages of a poll,
 * many of which may be empty; the maximum number of ids of a poll
 */
#define KVR_ROLL_COUNT     "256"
#define KVR_ROLL_PAGES     4096
#define KVR_ROLL_IDS       65536


static kvr_roll_rc_t kvr_roll_ask_page(kvr_roll_t *m, kvr_ask_t *ask);
static kvr_roll_rc_t kvr_roll_ask_next(kvr_roll_t *m, kvr_ask_t *ask,
    kvr_roll_asked_t **asked);
static bool kvr_roll_ours(const kvr_roll_t *m, const kvr_reply_t *id);
static void kvr_roll_page_ends(kvr_roll_t *m);
static kvr_roll_rc_t kvr_roll_ask_rest(kvr_roll_t *m, kvr_ask_t *ask,
    kvr_roll_asked_t **asked);
static kvr_roll_rc_t kvr_roll_ask_hash(kvr_roll_t *m, kvr_ask_t *ask,
    const char *id, size_t len, kvr_roll_asked_t **asked);
static kvr_roll_rc_t kvr_roll_ask_ttl(kvr_roll_t *m, kvr_ask_t *ask,
    kvr_roll_asked_t **asked);
static kvr_roll_rc_t kvr_roll_end(kvr_roll_t *m, uint64_t now_ms);
static bool kvr_roll_count(kvr_roll_t *m);


kvr_rc_t
kvr_roll_open(kvr_roll_t *m, const kvr_roll_conf_t *conf)
{
    m->conf = *conf;
    m->nmembers = kvr_router_max_workers(conf->router);
    m->members = calloc(m->nmembers, sizeof(kvr_roll_member_t));

    return m->members ? KVR_OK : KVR_FULL;
}


void
kvr_roll_close(kvr_roll_t *m)
{
    kvr_roll_reset(m);

    free(m->members);
    m->members = NULL;
    m->nmembers = 0;
}


void
kvr_roll_reset(kvr_roll_t *m)
{
    for ( /* void */ ; m->nasked; m->nasked--) {
        kvr_reply_release(&m->asked[m->first].hash);
        m->first = (m->first + 1) % KVR_ROLL_ASKED;
    }

    kvr_reply_release(&m->page);

    m->scanning = false;
    m->half = false;
    m->state = KVR_ROLL_IDLE;
}


void
kvr_roll_connected(kvr_roll_t *m, uint64_t now_ms)
{
    kvr_roll_reset(m);
    memset(m->members, 0, m->nmembers * sizeof(kvr_roll_member_t));

    m->since = now_ms;
}


void
kvr_roll_begin(kvr_roll_t *m, uint64_t now_ms, uint64_t shards)
{
    m->poll++;
    m->ids = 0;
    m->pages = 0;
    m->failed = false;
    m->begun = now_ms;
    m->shards = shards;
    m->state = KVR_ROLL_SCAN;

    kvr_reply_release(&m->page);

    kvr_tell_debug(m->conf.tell, "poll %u of the members begins", m->poll);
}


bool
kvr_roll_due(kvr_roll_t *m, uint64_t now_ms, uint64_t shards)
{
    uint32_t             i, n, version, flags;
    kvr_router_t        *k;
    const kvr_worker_t  *w;

    k = m->conf.router;
    version = kvr_router_version(k);

    if ((version == m->version && m->shards == shards)
        || now_ms - m->begun < KVR_ROLL_SOON)
    {
        return false;
    }

    m->version = version;

    if (m->shards != shards) {
        return true;
    }

    n = kvr_router_workers(k);

    for (i = 0; i < n && i < m->nmembers; i++) {
        w = kvr_router_worker(k, i);
        flags = kvr_load32(&w->flags);

        if (flags & KVR_WORKER_SEEN && !(flags & KVR_WORKER_DELETED)
            && shards >> kvr_router_worker_shard(k, i) & 1
            && m->members[i].generation != kvr_load32(&w->generation))
        {
            return true;
        }
    }

    return false;
}


/* ---- questions ---------------------------------------------------------- */

kvr_roll_rc_t
kvr_roll_step(kvr_roll_t *m, uint64_t now_ms, kvr_ask_t *ask,
    kvr_roll_asked_t **asked)
{
    kvr_roll_rc_t  rc;

    if (m->half) {
        return kvr_roll_ask_ttl(m, ask, asked);
    }

    for ( ;; ) {

        if (m->state == KVR_ROLL_IDLE || m->scanning) {
            return KVR_ROLL_WAIT;
        }

        rc = KVR_ROLL_ENDED;

        if (!m->failed) {

            switch (m->state) {

            case KVR_ROLL_SCAN:
                return kvr_roll_ask_page(m, ask);

            case KVR_ROLL_PAGE:
                rc = kvr_roll_ask_next(m, ask, asked);
                break;

            default: /* KVR_ROLL_REST */
                rc = kvr_roll_ask_rest(m, ask, asked);
                break;
            }
        }

        if (rc != KVR_ROLL_ENDED) {
            return rc;
        }

        if (m->nasked) {
            return KVR_ROLL_WAIT;
        }

        if (m->failed || m->state == KVR_ROLL_REST) {
            return kvr_roll_end(m, now_ms);
        }

        kvr_roll_page_ends(m);
    }
}


static kvr_roll_rc_t
kvr_roll_ask_page(kvr_roll_t *m, kvr_ask_t *ask)
{
    kvr_ask_begin(ask, "SSCAN");
    kvr_ask_text(ask, KVR_KEY_WORKERS);
    kvr_ask_text(ask, m->page.type == KVR_REPLY_NONE
                      ? "0" : kvr_reply_element(&m->page, 0).text);
    kvr_ask_text(ask, "COUNT");
    kvr_ask_text(ask, KVR_ROLL_COUNT);

    m->scanning = true;

    return KVR_ROLL_ASK_PAGE;
}


/* KVR_ROLL_ENDED: all ids of the page were asked for; KVR_ROLL_WAIT: later. */

static kvr_roll_rc_t
kvr_roll_ask_next(kvr_roll_t *m, kvr_ask_t *ask, kvr_roll_asked_t **asked)
{
    kvr_reply_t         id, ids;
    kvr_roll_member_t  *member;

    ids = kvr_reply_element(&m->page, 1);

    while (m->next < ids.len) {

        if (m->nasked == KVR_ROLL_ASKED) {
            return KVR_ROLL_WAIT;
        }

        id = kvr_reply_element(&ids, m->next++);

        if (id.type != KVR_REPLY_STRING
            || !(m->shards >> kvr_router_shard(m->conf.router, id.text, id.len)
                 & 1)
            || !kvr_roll_ours(m, &id))
        {
            continue;
        }

        if (m->ids++ == KVR_ROLL_IDS) {
            kvr_roll_fail(m, KVR_KEY_WORKERS, NULL);
            return KVR_ROLL_ENDED;
        }

        if (!kvr_worker_id_valid(id.text, id.len)) {
            kvr_roll_warn(m, id.text, id.len, "refused", "not a worker's id",
                          NULL);
            continue;
        }

        member = kvr_roll_member(m, id.text, id.len);

        if (member && member->poll == m->poll) {
            continue;                           /* SSCAN may repeat an id */
        }

        return kvr_roll_ask_hash(m, ask, id.text, id.len, asked);
    }

    return KVR_ROLL_ENDED;
}


/* If the channel is the channel of one worker, other ids are ignored. */

static bool
kvr_roll_ours(const kvr_roll_t *m, const kvr_reply_t *id)
{
    return m->conf.only == NULL
           || (id->len == m->conf.only_len
               && memcmp(id->text, m->conf.only, id->len) == 0);
}


static void
kvr_roll_page_ends(kvr_roll_t *m)
{
    if (strcmp(kvr_reply_element(&m->page, 0).text, "0") == 0) {
        m->state = KVR_ROLL_REST;
        m->next = 0;

    } else if (++m->pages == KVR_ROLL_PAGES) {
        kvr_roll_fail(m, KVR_KEY_WORKERS, NULL);

    } else {
        m->state = KVR_ROLL_SCAN;
    }
}


/*
 * Asks for the workers of Redis that are not in the set; returns as
 * kvr_roll_ask_next() does.
 */

static kvr_roll_rc_t
kvr_roll_ask_rest(kvr_roll_t *m, kvr_ask_t *ask, kvr_roll_asked_t **asked)
{
    uint32_t            i, n, flags, generation;
    kvr_router_t       *k;
    kvr_worker_conf_t   conf;

    k = m->conf.router;
    n = kvr_router_workers(k);

    while (m->next < n && m->next < m->nmembers) {

        if (m->nasked == KVR_ROLL_ASKED) {
            return KVR_ROLL_WAIT;
        }

        i = m->next++;

        if (m->shards >> kvr_router_worker_shard(k, i) & 1
            && m->members[i].poll != m->poll
            && kvr_router_read_worker(k, i, &conf, &flags, &generation)
               == KVR_OK
            && flags & KVR_WORKER_REDIS && !(flags & KVR_WORKER_DELETED))
        {
            return kvr_roll_ask_hash(m, ask, conf.id, strlen(conf.id), asked);
        }
    }

    return KVR_ROLL_ENDED;
}


static kvr_roll_rc_t
kvr_roll_ask_hash(kvr_roll_t *m, kvr_ask_t *ask, const char *id, size_t len,
    kvr_roll_asked_t **asked)
{
    size_t             i;
    uint32_t           worker;
    kvr_roll_asked_t  *a;

    a = &m->asked[(m->first + m->nasked++) % KVR_ROLL_ASKED];

    memset(a, 0, sizeof(kvr_roll_asked_t));
    memcpy(a->id, id, len);
    a->len = len;
    a->roll = m;
    a->drained = kvr_router_find_worker(m->conf.router, id, len, &worker)
                 == KVR_OK
                 && kvr_load32(&kvr_router_worker(m->conf.router,
                                                  worker)->flags)
                    & KVR_WORKER_LEAVING;

    /* not HGETALL: there may be any number of fields */

    kvr_ask_begin(ask, "HMGET");
    kvr_ask_key(ask, KVR_KEY_WORKER, id, len);

    for (i = 0; i < KVR_MEMBER_ROUTER; i++) {
        kvr_ask_text(ask, kvr_member_word(i));
    }

    m->half = true;
    *asked = a;

    return KVR_ROLL_ASK_HASH;
}


/* Of the worker that was asked for last. */

static kvr_roll_rc_t
kvr_roll_ask_ttl(kvr_roll_t *m, kvr_ask_t *ask, kvr_roll_asked_t **asked)
{
    kvr_roll_asked_t  *a;

    a = &m->asked[(m->first + m->nasked - 1) % KVR_ROLL_ASKED];

    kvr_ask_begin(ask, "PTTL");
    kvr_ask_key(ask, KVR_KEY_WORKER, a->id, a->len);

    m->half = false;
    *asked = a;

    return KVR_ROLL_ASK_TTL;
}


/* ---- answers ------------------------------------------------------------ */

void
kvr_roll_page(kvr_roll_t *m, kvr_reply_t *reply)
{
    bool  good;

    kvr_reply_release(&m->page);

    m->scanning = false;
    m->state = KVR_ROLL_PAGE;
    m->next = 0;

    good = reply->type == KVR_REPLY_ARRAY && reply->len == 2
           && kvr_reply_element(reply, 0).type == KVR_REPLY_STRING
           && kvr_reply_element(reply, 1).type == KVR_REPLY_ARRAY;

    if (good) {
        m->page = *reply;

    } else {
        kvr_roll_fail(m, KVR_KEY_WORKERS, reply);
        kvr_reply_release(reply);
    }
}


void
kvr_roll_hash(kvr_roll_asked_t *asked, kvr_reply_t *reply)
{
    asked->hash = *reply;
}


kvr_rc_t
kvr_roll_ttl(kvr_roll_asked_t *asked, uint64_t now_ms, kvr_reply_t *reply)
{
    kvr_rc_t     rc;
    kvr_roll_t  *m;

    m = asked->roll;
    rc = KVR_OK;

    if (reply->type != KVR_REPLY_INTEGER) {
        kvr_roll_fail(m, KVR_KEY_WORKER, reply);

    } else if (!m->failed) {
        rc = kvr_roll_found(m, asked, reply->integer, now_ms);
    }

    kvr_reply_release(reply);
    kvr_reply_release(&asked->hash);

    m->first = (m->first + 1) % KVR_ROLL_ASKED;
    m->nasked--;

    return rc;
}


/* ---- the end ------------------------------------------------------------ */

static kvr_roll_rc_t
kvr_roll_end(kvr_roll_t *m, uint64_t now_ms)
{
    uint32_t  i;

    kvr_reply_release(&m->page);

    m->state = KVR_ROLL_IDLE;

    if (m->failed) {
        m->since = now_ms;
        return KVR_ROLL_ENDED;
    }

    m->logged = false;

    /*
     * most workers are absent at once: Redis lost its data, and the workers
     * will register again
     */

    if (!kvr_roll_count(m)) {
        m->since = now_ms;
    }

    if (!kvr_roll_sure(m, now_ms)) {
        return KVR_ROLL_ENDED;
    }

    for (i = 0; i < m->nmembers; i++) {

        if (m->members[i].absences >= KVR_ROLL_ABSENCES
            && kvr_roll_gone(m, i) == KVR_LOST)
        {
            return KVR_ROLL_LOST;
        }
    }

    return KVR_ROLL_ENDED;
}


/* Counts absences; false: more than half of the workers are newly absent. */

static bool
kvr_roll_count(kvr_roll_t *m)
{
    uint32_t             i, n, flags, known, missed;
    kvr_router_t        *k;
    kvr_roll_member_t   *member;
    const kvr_worker_t  *w;

    k = m->conf.router;
    n = kvr_router_workers(k);

    known = 0;
    missed = 0;

    for (i = 0; i < n && i < m->nmembers; i++) {
        w = kvr_router_worker(k, i);
        flags = kvr_load32(&w->flags);
        member = &m->members[i];

        if (!(m->shards >> kvr_router_worker_shard(k, i) & 1)) {
            continue;
        }

        member->generation = kvr_load32(&w->generation);

        /*
         * if Redis did not add the worker, only its registration can be taken
         * back, and only if it has one
         */

        if (flags & KVR_WORKER_DELETED
            || (!(flags & KVR_WORKER_REDIS)
                && kvr_load64(&w->expires_ms) == 0))
        {
            member->absences = 0;
            continue;
        }

        known++;

        if (member->poll == m->poll) {
            member->absences = 0;

        } else {
            missed += (member->absences++ == 0);
        }
    }

    kvr_tell_debug(m->conf.tell, "poll %u of the members ends: %u known, %u "
                   "newly absent%s", m->poll, known, missed,
                   missed * 2 > known ? ", none is taken out yet" : "");

    return missed * 2 <= known;
}
