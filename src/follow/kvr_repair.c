
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * One example, all the way.  Worker w1 was followed up to message 7-40, that
 * is, message 40 of epoch 7.  Then the connection to Redis was lost for a
 * while.  Meanwhile the engine published up to 7-900, the log was trimmed and
 * begins with 7-500, and a snapshot was written after 7-600:
 *
 *     log        ················[500 ─────────────────────── 900]
 *     snapshot                            600
 *     view   … 40
 *
 *     step       start: w1 is SYNCING, for its stream has an epoch
 *     step       ASK  XREVRANGE kv-log:{w1} + - COUNT 1
 *     answer     [["7-900" ["m" …]]]
 *     step       last: the log ends at 7-900, and the view is behind it
 *     step       ASK  HMGET kv-snap:{w1} version epoch …
 *     answer     ["1" "7" "600" "1" "2" "16" …]
 *     step       pointer: the log is preferred while it may lead on from 7-40
 *     step       ASK  XRANGE kv-log:{w1} (7-40 7-18446744073709551615 …
 *     answer     [["7-500" …] … 128 entries]
 *     step       page: 7-41 is missing: "late", so that a snapshot is needed
 *     step       ASK  HMGET kv-snap:{w1} …, and the same answer
 *     step       pointer: 7-600 is later than 7-40: it is taken
 *     step       load: views aside are begun; nothing reads them yet
 *     step       ASK  GETRANGE kv-snap:{w1}:7-600:0 0 262144
 *     answer     a batch of stores
 *     step       YIELD, as often as it takes to apply them, then the same
 *                with part 1
 *     step       swap: w1's view is the snapshot's, its place is 7-600
 *     step       ASK  XRANGE kv-log:{w1} (7-600 …
 *     answer     [["7-601" …] … 128 entries]
 *     step       APPLY, for each entry; and two more pages, the last of which
 *                is not full
 *     step       end: nothing is missing: w1 is EXACT
 *     step       DONE
 *
 * Live messages that come meanwhile wait: their owner parks them, and applies
 * them afterwards; those that the log had are duplicates then.
 */


#include "kvr_repair_state.h"

#include <stdlib.h>


/* entries of a page; fewer when they are too big for one reply */
#define KVR_REPAIR_PAGE_COUNT  128

/*
 * when Redis does not give what it is asked for: the number of tries, and the
 * milliseconds before the second try
 */
#define KVR_REPAIR_TRIES       3
#define KVR_REPAIR_TRY_AGAIN   500


static kvr_next_t kvr_repair_start(kvr_repair_t *r);
static kvr_next_t kvr_repair_ask(kvr_repair_t *r, const kvr_turn_t *turn,
    kvr_ask_t *ask);
static kvr_next_t kvr_repair_last(kvr_repair_t *r);
static kvr_next_t kvr_repair_page(kvr_repair_t *r,
    const kvr_turn_t *turn);
static kvr_next_t kvr_repair_page_ends(kvr_repair_t *r);
static kvr_next_t kvr_repair_hole(kvr_repair_t *r,
    const kvr_cursor_t *id);
static kvr_next_t kvr_repair_apply(kvr_repair_t *r,
    const kvr_turn_t *turn, const kvr_cursor_t *id, const kvr_reply_t *body);
static bool kvr_repair_entry(const kvr_reply_t *entry, kvr_cursor_t *id,
    kvr_reply_t *body);
static kvr_next_t kvr_repair_end(kvr_repair_t *r);

static bool kvr_repair_expected(const kvr_repair_t *r,
    const kvr_reply_t *reply);
static void kvr_repair_too_big(kvr_repair_t *r);
static void kvr_repair_again(kvr_repair_t *r, const kvr_turn_t *turn,
    const kvr_reply_t *reply);


void
kvr_repair_begin(kvr_repair_t *r, const kvr_repair_env_t *env,
    kvr_lane_t *lane, uint32_t number, const char *id)
{
    memset(r, 0, sizeof(kvr_repair_t));

    r->env = env;
    r->lane = lane;
    r->number = number;
    r->len = strlen(id);
    memcpy(r->id, id, r->len + 1);
    r->count = KVR_REPAIR_PAGE_COUNT;
    r->state = lane->look ? KVR_REPAIR_POINTER : KVR_REPAIR_START;
    r->effect = lane->look ? KVR_EFFECT_LOOK : KVR_EFFECT_NONE;

    kvr_tell_debug(env->tell, "repair of worker \"%s\" starts%s", r->id,
                   lane->look ? ", looking for a snapshot" : "");
}


void
kvr_repair_stop(kvr_repair_t *r)
{
    kvr_snapshot_destroy(r->snapshot);
    kvr_reply_release(&r->reply);

    memset(r, 0, sizeof(kvr_repair_t));
}


kvr_next_t
kvr_repair_step(kvr_repair_t *r, const kvr_turn_t *turn, kvr_ask_t *ask)
{
    switch (r->state) {

    case KVR_REPAIR_START:
        return kvr_repair_start(r);

    case KVR_REPAIR_LOAD:
        return kvr_repair_load(r);

    case KVR_REPAIR_SWAP:
        return kvr_repair_swap(r, turn);

    case KVR_REPAIR_END:
        return kvr_repair_end(r);

    case KVR_REPAIR_DONE:
        return KVR_NEXT_DONE;

    default:
        break;
    }

    if (r->asked == KVR_ASKED_NOT) {
        return kvr_repair_ask(r, turn, ask);
    }

    if (r->asked == KVR_ASKED_WAITS) {
        return KVR_NEXT_WAIT;
    }

    switch (r->state) {

    case KVR_REPAIR_POINTER:
        return kvr_repair_pointer(r);

    case KVR_REPAIR_PART:
        return kvr_repair_part(r, turn);

    case KVR_REPAIR_NEW:
        r->env->tell->count(r->env->tell->data, KVR_COUNT_SNAPSHOTS_ASKED);
        return kvr_repair_sees(r, KVR_SEES_NEXT);

    default: /* KVR_REPAIR_LAST, KVR_REPAIR_ASIDE, KVR_REPAIR_PAGE */
        break;
    }

    if (r->asked == KVR_ASKED_IN_VAIN) {
        return kvr_repair_sees(r, KVR_SEES_VAIN);
    }

    return r->state == KVR_REPAIR_LAST ? kvr_repair_last(r)
                                       : kvr_repair_page(r, turn);
}


static kvr_next_t
kvr_repair_start(kvr_repair_t *r)
{
    kvr_rc_t      rc;
    kvr_cursor_t  cursor;

    cursor = kvr_repair_cursor(r);

    /* without envelopes, only the log shows the missing messages */

    if (cursor.epoch || r->lane->missing.epoch) {
        rc = kvr_repair_syncing(r);
        if (rc != KVR_OK) {
            return kvr_repair_stopped(rc);
        }
    }

    return kvr_repair_sees(r, KVR_SEES_NEXT);
}


static kvr_next_t
kvr_repair_ask(kvr_repair_t *r, const kvr_turn_t *turn, kvr_ask_t *ask)
{
    kvr_rc_t  rc;

    if (r->state == KVR_REPAIR_PAGE && r->count == 0) {

        /* the next entry alone is too big */

        rc = kvr_repair_lose(r->env, r->id, r->len, r->last.epoch, r->seq + 1);
        if (rc != KVR_OK) {
            return kvr_repair_stopped(rc);
        }

        r->seq++;
        r->count = 1;
        r->effect = KVR_EFFECT_LOST;
    }

    if (r->state == KVR_REPAIR_NEW
        && (!turn->ready || !kvr_repair_wants_snapshot(r)))
    {
        return kvr_repair_sees(r, KVR_SEES_ENOUGH);
    }

    if (!turn->ready || r->after > turn->now_ms) {
        return KVR_NEXT_WAIT;
    }

    kvr_repair_command(r, ask);

    kvr_tell_debug(r->env->tell, "repair of worker \"%s\" asks: %s %s", r->id,
                   ask->argv[0], ask->argv[1]);

    r->asked = KVR_ASKED_WAITS;

    return KVR_NEXT_ASK;
}


/* ---- the log ------------------------------------------------------------ */

static kvr_next_t
kvr_repair_last(kvr_repair_t *r)
{
    kvr_rc_t      rc;
    kvr_reply_t   entry, body;
    kvr_cursor_t  cursor;

    memset(&r->last, 0, sizeof(kvr_cursor_t));

    if (r->reply.len) {
        entry = kvr_reply_element(&r->reply, 0);
        (void) kvr_repair_entry(&entry, &r->last, &body);
    }

    cursor = kvr_repair_cursor(r);

    kvr_tell_debug(r->env->tell, "repair of worker \"%s\": its log ends at "
                   "%llu-%llu, its view is at %llu-%llu", r->id,
                   (unsigned long long) r->last.epoch,
                   (unsigned long long) r->last.seq,
                   (unsigned long long) cursor.epoch,
                   (unsigned long long) cursor.seq);

    if (kvr_repair_behind(&cursor, &r->last)) {
        rc = kvr_repair_syncing(r);
        if (rc != KVR_OK) {
            return kvr_repair_stopped(rc);
        }
    }

    /* the end of the log is known: a snapshot may be a shorter way to it */

    return kvr_repair_sees(r, KVR_SEES_NEXT);
}


static kvr_next_t
kvr_repair_page(kvr_repair_t *r, const kvr_turn_t *turn)
{
    bool             good;
    kvr_reply_t      entry, body;
    kvr_cursor_t     id;
    kvr_next_t       rc;

    if (r->entry == r->reply.len) {
        return kvr_repair_page_ends(r);
    }

    entry = kvr_reply_element(&r->reply, r->entry);

    good = kvr_repair_entry(&entry, &id, &body);

    if (!good) {
        kvr_tell_refused(r->env->tell, &r->lane->detail, r->id, r->len,
                         "not an entry of a log");
    }

    if (!good || id.epoch != r->last.epoch || id.seq <= r->seq) {
        r->entry++;
        return KVR_NEXT_AGAIN;
    }

    if (r->state == KVR_REPAIR_ASIDE) {
        return kvr_repair_entry_aside(r, turn, id.seq, &body);
    }

    if (id.seq != r->seq + 1) {
        rc = kvr_repair_hole(r, &id);

        if (r->state != KVR_REPAIR_PAGE || rc != KVR_NEXT_AGAIN) {
            return rc;
        }
    }

    return kvr_repair_apply(r, turn, &id, &body);
}


static kvr_next_t
kvr_repair_page_ends(kvr_repair_t *r)
{
    kvr_tell_debug(r->env->tell, "repair of worker \"%s\": page of %zu "
                   "entries is read, up to %llu-%llu", r->id, r->entry,
                   (unsigned long long) r->last.epoch,
                   (unsigned long long) r->seq);

    if (r->entry >= r->count) {
        return kvr_repair_sees(r, KVR_SEES_NEXT);
    }

    return r->state == KVR_REPAIR_ASIDE
           ? kvr_repair_give_up(r) : kvr_repair_sees(r, KVR_SEES_ENOUGH);
}


/* Entries are missing before id: a snapshot is needed, or they are lost. */

static kvr_next_t
kvr_repair_hole(kvr_repair_t *r, const kvr_cursor_t *id)
{
    kvr_rc_t           rc;
    kvr_repair_move_t  move;

    move = kvr_repair_decide(r->state, r->way, KVR_SEES_HOLE);

    kvr_tell_debug(r->env->tell, "repair of worker \"%s\": its log goes on "
                   "with %llu, %llu is applied%s", r->id,
                   (unsigned long long) id->seq, (unsigned long long) r->seq,
                   move.lose ? "" : ", a snapshot is needed");

    if (!move.lose) {
        return kvr_repair_sees(r, KVR_SEES_HOLE);
    }

    rc = kvr_repair_lose(r->env, r->id, r->len, id->epoch, id->seq - 1);
    if (rc != KVR_OK) {
        return kvr_repair_stopped(rc);
    }

    r->seq = id->seq - 1;
    r->effect = KVR_EFFECT_LOST;

    return KVR_NEXT_AGAIN;
}


static kvr_next_t
kvr_repair_apply(kvr_repair_t *r, const kvr_turn_t *turn,
    const kvr_cursor_t *id, const kvr_reply_t *body)
{
    kvr_rc_t               rc;
    const char            *detail;
    kvr_ingest_verdict_t   verdict;

    detail = NULL;

    verdict = kvr_ingest_open(r->env->ingest, r->id, r->len, body->text,
                              body->len, false, turn->now_ms, &detail);
    switch (verdict) {

    case KVR_INGEST_BUSY:
        return KVR_NEXT_BUSY;

    case KVR_INGEST_LOST:
        return KVR_NEXT_LOST;

    case KVR_INGEST_GAP:

        /* the log's entry before this one was refused */

        r->effect = KVR_EFFECT_LOST;

        if (r->gap != id->seq) {
            rc = kvr_repair_lose(r->env, r->id, r->len, id->epoch,
                                 id->seq - 1);
            if (rc != KVR_OK) {
                return kvr_repair_stopped(rc);
            }

            r->gap = id->seq;
            return KVR_NEXT_AGAIN;
        }

        detail = "no place in the stream";
        break;

    default: /* KVR_INGEST_APPLY, KVR_INGEST_DROP */
        break;
    }

    if (detail) {
        kvr_tell_refused(r->env->tell, &r->lane->detail, r->id, r->len,
                         detail);
    }

    r->at = *id;
    r->bytes = body->len;

    if (verdict != KVR_INGEST_APPLY) {
        (void) kvr_repair_applied(r);
        return KVR_NEXT_AGAIN;
    }

    return KVR_NEXT_APPLY;
}


size_t
kvr_repair_applied(kvr_repair_t *r)
{
    r->seq = r->at.seq;
    r->entry++;

    return r->bytes;
}


/* ["epoch-seq", ["m", body, …]]; false: something else */

static bool
kvr_repair_entry(const kvr_reply_t *entry, kvr_cursor_t *id, kvr_reply_t *body)
{
    char         *end;
    kvr_reply_t   key, fields;

    if (entry->type != KVR_REPLY_ARRAY || entry->len < 2) {
        return false;
    }

    key = kvr_reply_element(entry, 0);
    fields = kvr_reply_element(entry, 1);

    if (key.type != KVR_REPLY_STRING || fields.type != KVR_REPLY_ARRAY
        || fields.len < 2)
    {
        return false;
    }

    *body = kvr_reply_element(&fields, 1);

    if (body->type != KVR_REPLY_STRING) {
        return false;
    }

    /* Redis itself wrote the id: both numbers fit into 64 bits */

    id->epoch = strtoull(key.text, &end, 10);
    id->seq = *end == '-' ? strtoull(end + 1, &end, 10) : UINT64_MAX;

    return *end == '\0' && id->epoch <= KVR_EPOCH_MAX
           && id->seq <= KVR_SEQ_MAX;
}


/* ---- the end ------------------------------------------------------------ */

static kvr_next_t
kvr_repair_end(kvr_repair_t *r)
{
    kvr_rc_t             rc;
    kvr_lane_t          *lane;
    kvr_cursor_t         cursor, *end;
    kvr_repair_move_t    move;
    kvr_repair_event_t   event;

    lane = r->lane;
    cursor = kvr_repair_cursor(r);
    end = &cursor;
    event = KVR_SEES_ENOUGH;

    if (kvr_repair_behind(&cursor, &lane->missing)) {
        end = &lane->missing;
        event = KVR_SEES_HOLE;
    }

    move = kvr_repair_decide(r->state, r->way, event);

    if (move.state == KVR_REPAIR_POINTER) {
        return kvr_repair_sees(r, event);
    }

    rc = KVR_OK;

    if (move.lose && end->epoch) {
        rc = kvr_repair_lose(r->env, r->id, r->len, end->epoch, end->seq);

    } else if (r->effect == KVR_EFFECT_SYNCING
               && !(lane->wanted && cursor.epoch))
    {
        /*
         * a repair that is still wanted may find more messages missing, and
         * makes this call at its own end
         */

        rc = kvr_repair_rc(kvr_ingest_repair_end(r->env->ingest, r->id,
                                                 r->len));
    }

    if (rc != KVR_OK) {
        return kvr_repair_stopped(rc);
    }

    memset(&lane->missing, 0, sizeof(kvr_cursor_t));

    if (move.lose) {
        r->effect = KVR_EFFECT_LOST;
    }

    kvr_tell_debug(r->env->tell, "repair of worker \"%s\" ends at %llu-%llu%s",
                   r->id, (unsigned long long) cursor.epoch,
                   (unsigned long long) cursor.seq,
                   r->effect == KVR_EFFECT_LOST ? ", messages are lost" : "");

    return kvr_repair_sees(r, event);
}


/* ---- answers ------------------------------------------------------------ */

void
kvr_repair_answer(kvr_repair_t *r, const kvr_turn_t *turn, kvr_reply_t *reply)
{
    static const char *const  kinds[KVR_REPLY_TYPES] = {
        "nothing", "string", "status", "integer", "array", "nil", "error",
        "another type"
    };

    if (reply->type == KVR_REPLY_LOST || reply->type == KVR_REPLY_TOO_BIG) {

        kvr_tell_debug(r->env->tell, "repair of worker \"%s\": its question "
                       "was lost, and is asked again", r->id);

        r->asked = KVR_ASKED_NOT;

        if (reply->type == KVR_REPLY_TOO_BIG) {
            kvr_repair_too_big(r);
        }

        return;
    }

    kvr_tell_debug(r->env->tell, "repair of worker \"%s\" is answered: %s of "
                   "%zu", r->id, kinds[reply->type], reply->len);

    if (kvr_repair_expected(r, reply)) {
        r->reply = *reply;
        r->asked = KVR_ASKED_ANSWERED;
        r->errors = 0;
        return;
    }

    if (r->state == KVR_REPAIR_LAST || r->state == KVR_REPAIR_PAGE
        || r->state == KVR_REPAIR_ASIDE)
    {
        kvr_repair_again(r, turn, reply);

    } else {

        /*
         * no harm is done: the log remains, and a snapshot is tried again
         * later
         */

        kvr_repair_trouble(r, r->state == KVR_REPAIR_NEW ? KVR_TROUBLE_ASK
                                                         : KVR_TROUBLE_READ,
                           reply->type == KVR_REPLY_ERROR
                           ? reply->text : "not what was asked for");

        r->asked = KVR_ASKED_IN_VAIN;
    }

    kvr_reply_release(reply);
}


void
kvr_repair_unasked(kvr_repair_t *r)
{
    r->asked = KVR_ASKED_NOT;
}


static bool
kvr_repair_expected(const kvr_repair_t *r, const kvr_reply_t *reply)
{
    /* nil: another router has already asked for a new snapshot */

    return r->state == KVR_REPAIR_NEW
           ? reply->type == KVR_REPLY_STATUS || reply->type == KVR_REPLY_NIL
           : reply->type == (r->state == KVR_REPAIR_PART ? KVR_REPLY_STRING
                                                         : KVR_REPLY_ARRAY);
}


/*
 * A page is asked for with fewer entries, and then without its first one; but
 * not forever: no publisher writes an entry that is too big.
 */

static void
kvr_repair_too_big(kvr_repair_t *r)
{
    if ((r->state == KVR_REPAIR_PAGE || r->state == KVR_REPAIR_ASIDE)
        && r->count > 1)
    {
        r->count = r->count >= 16 ? r->count / 8 : 1;
        return;
    }

    if (r->state == KVR_REPAIR_PAGE) {
        r->count = 0;
    }

    if (++r->errors >= KVR_REPAIR_TRIES) {
        r->asked = KVR_ASKED_IN_VAIN;
    }
}


/* The log can't be read: asks again some time later, three times. */

static void
kvr_repair_again(kvr_repair_t *r, const kvr_turn_t *turn,
    const kvr_reply_t *reply)
{
    uint32_t  delay;

    kvr_tell(r->env->tell, r->errors ? KVR_LOG_INFO : KVR_LOG_ERROR,
             "log of worker \"%s\" can't be read: \"%s\"", r->id,
             reply->type == KVR_REPLY_ERROR ? reply->text : "no array");

    r->asked = KVR_ASKED_NOT;

    if (++r->errors >= KVR_REPAIR_TRIES) {
        r->asked = KVR_ASKED_IN_VAIN;
        return;
    }

    delay = KVR_REPAIR_TRY_AGAIN << (r->errors - 1);
    delay = delay / 2 + turn->random % delay;

    r->after = turn->now_ms + delay;

    kvr_tell_debug(r->env->tell, "repair of worker \"%s\" asks again in %u ms",
                   r->id, delay);
}
