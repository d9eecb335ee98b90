
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What a repair asks of Redis, and of the zone: a worker's log is a stream
 * whose entries have the ids epoch-seq (wire/kvr_keys.h).
 */


#include "kvr_repair_state.h"


void
kvr_repair_command(const kvr_repair_t *r, kvr_ask_t *ask)
{
    size_t  i;

    switch (r->state) {

    case KVR_REPAIR_LAST:
        kvr_ask_begin(ask, "XREVRANGE");
        kvr_ask_key(ask, KVR_KEY_LOG, r->id, r->len);
        kvr_ask_text(ask, "+");
        kvr_ask_text(ask, "-");
        kvr_ask_text(ask, "COUNT");
        kvr_ask_text(ask, "1");
        return;

    case KVR_REPAIR_ASIDE:
    case KVR_REPAIR_PAGE:
        kvr_ask_begin(ask, "XRANGE");
        kvr_ask_key(ask, KVR_KEY_LOG, r->id, r->len);
        kvr_ask_printf(ask, "(%llu-%llu", (unsigned long long) r->last.epoch,
                       (unsigned long long) r->seq);
        kvr_ask_printf(ask, "%llu-%llu", (unsigned long long) r->last.epoch,
                       (unsigned long long) UINT64_MAX);
        kvr_ask_text(ask, "COUNT");
        kvr_ask_printf(ask, "%u", r->count);
        return;

    case KVR_REPAIR_POINTER:
        kvr_ask_begin(ask, "HMGET");
        kvr_ask_key(ask, KVR_KEY_SNAPSHOT, r->id, r->len);

        for (i = 0; i < KVR_POINTER_ROUTER; i++) {
            kvr_ask_text(ask, kvr_pointer_fields[i]);
        }

        return;

    case KVR_REPAIR_PART:

        /*
         * ask for one byte more than a part may have: a part that is too long
         * is noticed, and never read as a whole
         */

        kvr_ask_begin(ask, "GETRANGE");
        kvr_ask_part(ask, r->id, r->len, r->head.epoch, r->head.seq, r->part);
        kvr_ask_text(ask, "0");
        kvr_ask_printf(ask, "%u", KVR_SNAPSHOT_PART_MAX);
        return;

    default: /* KVR_REPAIR_NEW */
        kvr_ask_begin(ask, "SET");
        kvr_ask_key(ask, KVR_KEY_ASK, r->id, r->len);
        kvr_ask_text(ask, "1");
        kvr_ask_text(ask, "EX");
        kvr_ask_text(ask, "60");
        kvr_ask_text(ask, "NX");
        return;
    }
}


void
kvr_repair_trouble(kvr_repair_t *r, kvr_trouble_t kind, const char *detail)
{
    kvr_level_t  level;

    level = (r->lane->logged >> kind & 1) ? KVR_LOG_INFO : KVR_LOG_WARN;
    r->lane->logged |= 1u << kind;

    r->env->tell->count(r->env->tell->data, KVR_COUNT_SNAPSHOTS_REFUSED);

    kvr_tell(r->env->tell, level, kind == KVR_TROUBLE_ASK
             ? "no snapshot of worker \"%s\" can be asked for: %s"
             : "snapshot of worker \"%s\" refused: %s", r->id, detail);
}


kvr_cursor_t
kvr_repair_cursor(const kvr_repair_t *r)
{
    kvr_cursor_t  cursor;

    if (kvr_ingest_cursor(r->env->ingest, r->id, r->len, &cursor) != KVR_OK) {
        memset(&cursor, 0, sizeof(kvr_cursor_t));
    }

    return cursor;
}


bool
kvr_repair_behind(const kvr_cursor_t *a, const kvr_cursor_t *b)
{
    return a->epoch < b->epoch || (a->epoch == b->epoch && a->seq < b->seq);
}


kvr_rc_t
kvr_repair_syncing(kvr_repair_t *r)
{
    kvr_rc_t  rc;

    if (r->effect >= KVR_EFFECT_SYNCING) {
        return KVR_OK;
    }

    rc = kvr_repair_rc(kvr_ingest_repair_begin(r->env->ingest, r->id, r->len));

    if (rc == KVR_OK) {
        r->effect = KVR_EFFECT_SYNCING;
    }

    return rc;
}


kvr_rc_t
kvr_repair_lose(const kvr_repair_env_t *env, const char *id, size_t len,
    uint64_t epoch, uint64_t seq)
{
    kvr_rc_t  rc;

    rc = kvr_repair_rc(kvr_ingest_repair_failed(env->ingest, id, len, epoch,
                                                seq));
    if (rc == KVR_OK) {
        kvr_tell(env->tell, KVR_LOG_ERROR, "messages of worker \"%.*s\" up "
                 "to %llu-%llu are lost, Redis does not have them in \""
                 KVR_KEY_LOG ":{%.*s}\": is its kv-relay's database that of "
                 "kv_router_redis, and is the log long enough?", (int) len, id,
                 (unsigned long long) epoch, (unsigned long long) seq,
                 (int) len, id);
    }

    return rc;
}


kvr_rc_t
kvr_repair_rc(kvr_rc_t rc)
{
    return (rc == KVR_BUSY || rc == KVR_LOST) ? rc : KVR_OK;
}


kvr_next_t
kvr_repair_stopped(kvr_rc_t rc)
{
    return rc == KVR_LOST ? KVR_NEXT_LOST : KVR_NEXT_BUSY;
}


bool
kvr_repair_wants_snapshot(const kvr_repair_t *r)
{
    return kvr_fleet_wants_snapshot(kvr_router_worker(r->env->router,
                                                      r->number));
}
