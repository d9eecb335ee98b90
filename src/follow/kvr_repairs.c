
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_repairs.h"
#include "kvr_repair_state.h"

#include <stdlib.h>


/*
 * the minimum and maximum milliseconds between looks for a snapshot, and the
 * number of lanes looked at in one tick
 */
#define KVR_REPAIRS_LOOK_MIN  200
#define KVR_REPAIRS_LOOK_MAX  5000
#define KVR_REPAIRS_TICK      1024


static bool kvr_repairs_start(kvr_repairs_t *s, kvr_repair_t *r);
static void kvr_repairs_done(kvr_repairs_t *s, kvr_repair_t *r,
    const kvr_turn_t *turn);
static void kvr_repairs_look_later(kvr_repairs_t *s, kvr_repair_t *r,
    const kvr_turn_t *turn);


kvr_rc_t
kvr_repairs_open(kvr_repairs_t *s)
{
    s->nlanes = kvr_router_max_workers(s->env.router);
    s->lanes = calloc(s->nlanes, sizeof(kvr_lane_t));

    return s->lanes ? KVR_OK : KVR_FULL;
}


void
kvr_repairs_close(kvr_repairs_t *s)
{
    uint32_t  i;

    for (i = 0; i < KVR_REPAIRS; i++) {
        kvr_repair_stop(&s->repairs[i]);
    }

    for (i = 0; s->lanes && i < s->nlanes; i++) {
        kvr_queue_unpark(s->queue, &s->lanes[i].parked);
    }

    free(s->lanes);
    s->lanes = NULL;
    s->nlanes = 0;

    s->nactive = 0;
    s->nwanted = 0;
    s->repaired = 0;
    s->unrepaired = 0;
}


kvr_lane_t *
kvr_repairs_lane(kvr_repairs_t *s, const char *id, size_t len)
{
    uint32_t  n;

    if (kvr_router_find_worker(s->env.router, id, len, &n) != KVR_OK
        || n >= s->nlanes)
    {
        return NULL;
    }

    return &s->lanes[n];
}


void
kvr_repairs_want(kvr_repairs_t *s, kvr_lane_t *lane)
{
    if (!s->replay) {
        return;
    }

    lane->look = false;

    if (!lane->wanted) {
        lane->wanted = true;
        s->nwanted++;
    }
}


void
kvr_repairs_want_shards(kvr_repairs_t *s, uint64_t shards)
{
    uint32_t       i, n, flags;
    kvr_router_t  *k;

    k = s->env.router;
    n = kvr_router_workers(k);

    for (i = 0; i < n && i < s->nlanes; i++) {

        flags = kvr_load32(&kvr_router_worker(k, i)->flags);

        if (flags & KVR_WORKER_USED && !(flags & KVR_WORKER_DELETED)
            && shards >> kvr_router_worker_shard(k, i) & 1)
        {
            kvr_repairs_want(s, &s->lanes[i]);
        }
    }
}


void
kvr_repairs_tick(kvr_repairs_t *s, uint64_t shards, uint64_t now_ms)
{
    uint32_t       i, n;
    kvr_lane_t    *lane;
    kvr_router_t  *k;

    if (!s->replay) {
        return;
    }

    k = s->env.router;
    n = kvr_router_workers(k);
    n = n < s->nlanes ? n : s->nlanes;

    for (i = 0; i < n && i < KVR_REPAIRS_TICK; i++) {

        s->looked = (s->looked + 1 < n) ? s->looked + 1 : 0;
        lane = &s->lanes[s->looked];

        if (!lane->wanted && !lane->active && lane->again <= now_ms
            && shards >> kvr_router_worker_shard(k, s->looked) & 1
            && kvr_fleet_wants_snapshot(kvr_router_worker(k, s->looked)))
        {
            kvr_repairs_want(s, lane);
            lane->look = true;
        }
    }
}


kvr_next_t
kvr_repairs_step(kvr_repairs_t *s, const kvr_turn_t *turn, kvr_ask_t *ask,
    kvr_repair_t **r)
{
    uint32_t         i, first;
    kvr_next_t       rc;

    first = s->turn++;

    for (i = 0; i < KVR_REPAIRS; i++) {

        /* begin with another repair each time */

        *r = &s->repairs[(first + i) % KVR_REPAIRS];

        if ((*r)->lane == NULL
            && (s->nwanted == 0 || !kvr_repairs_start(s, *r)))
        {
            continue;
        }

        rc = kvr_repair_step(*r, turn, ask);

        if (rc == KVR_NEXT_DONE) {
            kvr_repairs_done(s, *r, turn);
            return KVR_NEXT_AGAIN;
        }

        if (rc != KVR_NEXT_WAIT) {
            return rc;
        }
    }

    return KVR_NEXT_WAIT;
}


/* Starts one of the repairs that are wanted; false: none can be. */

static bool
kvr_repairs_start(kvr_repairs_t *s, kvr_repair_t *r)
{
    uint32_t           i, flags, generation;
    kvr_rc_t           rc;
    kvr_lane_t        *lane;
    kvr_worker_conf_t  conf;

    for (i = 0; i < s->nlanes; i++) {

        lane = &s->lanes[i];

        if (!lane->wanted || lane->active) {
            continue;
        }

        rc = kvr_router_read_worker(s->env.router, i, &conf, &flags,
                                    &generation);
        if (rc == KVR_BUSY) {
            continue;
        }

        lane->wanted = false;
        s->nwanted--;

        if (rc != KVR_OK || (flags & KVR_WORKER_DELETED)) {
            kvr_queue_unpark(s->queue, &lane->parked);
            continue;
        }

        kvr_repair_begin(r, &s->env, lane, i, conf.id);

        lane->active = true;
        s->nactive++;

        if (r->effect != KVR_EFFECT_LOOK) {
            s->env.tell->count(s->env.tell->data, KVR_COUNT_REPAIRS_STARTED);
        }

        return true;
    }

    return false;
}


static void
kvr_repairs_done(kvr_repairs_t *s, kvr_repair_t *r, const kvr_turn_t *turn)
{
    kvr_repairs_look_later(s, r, turn);

    /*
     * a look that found nothing to repair is not counted: looks are frequent
     */

    if (r->effect == KVR_EFFECT_LOST) {
        s->env.tell->count(s->env.tell->data, KVR_COUNT_REPAIRS_FAILED);
        s->unrepaired++;

    } else if (r->effect != KVR_EFFECT_LOOK) {
        s->env.tell->count(s->env.tell->data, KVR_COUNT_REPAIRS_DONE);
        s->repaired++;
    }

    r->lane->active = false;
    s->nactive--;

    kvr_queue_unpark(s->queue, &r->lane->parked);

    kvr_repair_stop(r);

    if (s->nactive == 0 && s->nwanted == 0 && s->repaired + s->unrepaired) {
        kvr_tell(s->env.tell, KVR_LOG_NOTICE, "workers resynchronized: %u, "
                 "with lost events: %u", s->repaired + s->unrepaired,
                 s->unrepaired);

        s->repaired = 0;
        s->unrepaired = 0;
    }
}


/* Sets when to look for a snapshot again. */

static void
kvr_repairs_look_later(kvr_repairs_t *s, kvr_repair_t *r,
    const kvr_turn_t *turn)
{
    uint32_t     delay;
    kvr_lane_t  *lane;

    lane = r->lane;

    if (!kvr_repair_wants_snapshot(r)) {
        lane->again = 0;
        lane->delay = 0;
        return;
    }

    delay = kvr_max(lane->delay * 2, KVR_REPAIRS_LOOK_MIN);
    delay = kvr_min(delay, KVR_REPAIRS_LOOK_MAX);

    lane->delay = delay;

    /* 50-100% of the delay, so that workers are not repaired at once */

    delay = delay / 2 + turn->random % (delay / 2);

    lane->again = turn->now_ms + delay;

    kvr_tell_debug(s->env.tell, "worker \"%s\" needs a snapshot, looking "
                   "again in %u ms", r->id, delay);
}
