
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
static kvr_next_t kvr_repair_end(kvr_repair_t *r,
    const kvr_turn_t *turn);

static bool kvr_repair_expected(const kvr_repair_t *r,
    const kvr_reply_t *reply);
static void kvr_repair_too_big(kvr_repair_t *r);
static void kvr_repair_again(kvr_repair_t *r, const kvr_turn_t *turn,
    const kvr_reply_t *reply);
static void kvr_repair_in_vain(kvr_repair_t *r);


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
    r->look = lane->look;

    kvr_tell_debug(env->tell, "repair of worker \"%s\" starts%s", r->id,
                   r->look ? ", looking for a snapshot" : "");
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
        return kvr_repair_end(r, turn);

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

    case KVR_REPAIR_LAST:
        return kvr_repair_last(r);

    case KVR_REPAIR_POINTER:
        return kvr_repair_pointer(r);

    case KVR_REPAIR_PART:
        return kvr_repair_part(r, turn);

    case KVR_REPAIR_PAGE:
        return kvr_repair_page(r, turn);

    default: /* KVR_REPAIR_NEW */
        kvr_repair_to(r, KVR_REPAIR_END);
        return KVR_NEXT_AGAIN;
    }
}


static kvr_next_t
kvr_repair_start(kvr_repair_t *r)
{
    kvr_rc_t      rc;
    kvr_cursor_t  cursor;

    if (r->look) {
        kvr_repair_to(r, KVR_REPAIR_POINTER);
        return KVR_NEXT_AGAIN;
    }

    cursor = kvr_repair_cursor(r);

    /* without envelopes, only the log shows the missing messages */

    if (cursor.epoch || r->lane->missing.epoch) {
        rc = kvr_repair_syncing(r);
        if (rc != KVR_OK) {
            return kvr_repair_stopped(rc);
        }
    }

    kvr_repair_to(r, KVR_REPAIR_LAST);

    return KVR_NEXT_AGAIN;
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
        r->failed = true;
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

    kvr_repair_to(r, KVR_REPAIR_POINTER);

    return KVR_NEXT_AGAIN;
}


static kvr_next_t
kvr_repair_page(kvr_repair_t *r, const kvr_turn_t *turn)
{
    kvr_reply_t      entry, body;
    kvr_cursor_t     id;
    kvr_next_t       rc;

    if (r->entry == r->reply.len) {
        return kvr_repair_page_ends(r);
    }

    entry = kvr_reply_element(&r->reply, r->entry);

    if (!kvr_repair_entry(&entry, &id, &body)) {
        kvr_tell_refused(r->env->tell, &r->lane->detail, r->id, r->len,
                         "not an entry of a log");
        r->entry++;
        return KVR_NEXT_AGAIN;
    }

    if (id.epoch != r->last.epoch || id.seq <= r->seq) {
        r->entry++;
        return KVR_NEXT_AGAIN;
    }

    if (r->aside) {
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
    bool  full;

    kvr_tell_debug(r->env->tell, "repair of worker \"%s\": page of %zu "
                   "entries is read, up to %llu-%llu", r->id, r->entry,
                   (unsigned long long) r->last.epoch,
                   (unsigned long long) r->seq);

    full = r->entry >= r->count;

    if (r->aside && !full) {
        return kvr_repair_give_up(r);
    }

    kvr_repair_to(r, full ? KVR_REPAIR_PAGE : KVR_REPAIR_END);

    return KVR_NEXT_AGAIN;
}


/* Entries are missing before id: a snapshot is needed, or they are lost. */

static kvr_next_t
kvr_repair_hole(kvr_repair_t *r, const kvr_cursor_t *id)
{
    kvr_rc_t  rc;

    kvr_tell_debug(r->env->tell, "repair of worker \"%s\": its log goes on "
                   "with %llu, %llu is applied%s", r->id,
                   (unsigned long long) id->seq, (unsigned long long) r->seq,
                   r->given_up ? "" : ", a snapshot is needed");

    if (!r->given_up) {
        r->late = true;
        kvr_repair_to(r, KVR_REPAIR_POINTER);
        return KVR_NEXT_AGAIN;
    }

    rc = kvr_repair_lose(r->env, r->id, r->len, id->epoch, id->seq - 1);
    if (rc != KVR_OK) {
        return kvr_repair_stopped(rc);
    }

    r->seq = id->seq - 1;
    r->failed = true;

    return KVR_NEXT_AGAIN;
}


static kvr_next_t
kvr_repair_apply(kvr_repair_t *r, const kvr_turn_t *turn,
    const kvr_cursor_t *id, const kvr_reply_t *body)
{
    kvr_rc_t     rc;
    const char  *detail;

    detail = NULL;

    switch (kvr_ingest_open(r->env->ingest, r->id, r->len, body->text,
                            body->len, false, turn->now_ms, &detail))
    {
    case KVR_INGEST_APPLY:

        if (detail) {
            kvr_tell_refused(r->env->tell, &r->lane->detail, r->id, r->len,
                             detail);
        }

        r->at = *id;
        r->bytes = body->len;
        return KVR_NEXT_APPLY;

    case KVR_INGEST_BUSY:
        return KVR_NEXT_BUSY;

    case KVR_INGEST_LOST:
        return KVR_NEXT_LOST;

    case KVR_INGEST_GAP:

        /* the log's entry before this one was refused */

        r->failed = true;

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

        /* fall through */

    default: /* KVR_INGEST_DROP */

        if (detail) {
            kvr_tell_refused(r->env->tell, &r->lane->detail, r->id, r->len,
                             detail);
        }

        r->seq = id->seq;
        r->entry++;
        return KVR_NEXT_AGAIN;
    }
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
    uint64_t      n[2];
    kvr_reply_t   key, fields;
    const char   *p;

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

    n[0] = n[1] = 0;

    for (p = key.text; *p >= '0' && *p <= '9'; p++) {
        n[0] = n[0] * 10 + (*p - '0');
    }

    if (*p == '-') {
        for (p++; *p >= '0' && *p <= '9'; p++) {
            n[1] = n[1] * 10 + (*p - '0');
        }
    }

    if (*p != '\0' || n[0] > KVR_EPOCH_MAX || n[1] > KVR_SEQ_MAX) {
        return false;
    }

    id->epoch = n[0];
    id->seq = n[1];

    return true;
}


/* ---- the end ------------------------------------------------------------ */

static kvr_next_t
kvr_repair_end(kvr_repair_t *r, const kvr_turn_t *turn)
{
    kvr_rc_t       rc;
    kvr_lane_t    *lane;
    kvr_cursor_t   cursor, *end;

    lane = r->lane;

    /* the snapshot aside is of no use without the log, which can't be read */

    kvr_snapshot_destroy(r->snapshot);
    r->snapshot = NULL;
    r->aside = false;

    cursor = kvr_repair_cursor(r);

    rc = KVR_OK;
    end = &cursor;

    if (kvr_repair_behind(&cursor, &lane->missing)) {

        /* the missing messages are not in the log either: try a snapshot */

        if (!r->given_up) {
            r->late = true;
            kvr_repair_to(r, KVR_REPAIR_POINTER);
            return KVR_NEXT_AGAIN;
        }

        end = &lane->missing;
        r->broken = true;
    }

    if (r->broken && end->epoch) {
        rc = kvr_repair_lose(r->env, r->id, r->len, end->epoch, end->seq);

    } else if (r->begun && !r->failed && !(lane->wanted && cursor.epoch)) {

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

    r->failed = r->failed || r->broken;
    r->broken = false;

    if (!r->renewed && turn->ready && kvr_repair_wants_snapshot(r)) {
        r->renewed = true;
        kvr_repair_to(r, KVR_REPAIR_NEW);

        r->env->tell->count(r->env->tell->data, KVR_COUNT_SNAPSHOTS_ASKED);

        return KVR_NEXT_AGAIN;
    }

    kvr_tell_debug(r->env->tell, "repair of worker \"%s\" ends at %llu-%llu%s",
                   r->id, (unsigned long long) cursor.epoch,
                   (unsigned long long) cursor.seq,
                   r->failed ? ", messages are lost" : "");

    return KVR_NEXT_DONE;
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

    if (r->state == KVR_REPAIR_LAST || r->state == KVR_REPAIR_PAGE) {
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
    switch (r->state) {

    case KVR_REPAIR_PART:
        return reply->type == KVR_REPLY_STRING;

    case KVR_REPAIR_NEW:

        /* nil: another router has already asked for a new snapshot */

        return reply->type == KVR_REPLY_STATUS
               || reply->type == KVR_REPLY_NIL;

    default:
        return reply->type == KVR_REPLY_ARRAY;
    }
}


/*
 * A page is asked for with fewer entries, and then without its first one; but
 * not forever: no publisher writes an entry that is too big.
 */

static void
kvr_repair_too_big(kvr_repair_t *r)
{
    if (r->state == KVR_REPAIR_PAGE) {

        if (r->count > 1) {
            r->count = r->count >= 16 ? r->count / 8 : 1;
            return;
        }

        r->count = 0;
    }

    if (++r->errors >= KVR_REPAIR_TRIES) {
        kvr_repair_in_vain(r);
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
        kvr_repair_in_vain(r);
        return;
    }

    delay = KVR_REPAIR_TRY_AGAIN << (r->errors - 1);
    delay = delay / 2 + turn->random % delay;

    r->after = turn->now_ms + delay;

    kvr_tell_debug(r->env->tell, "repair of worker \"%s\" asks again in %u ms",
                   r->id, delay);
}


/* Redis can't give what the state needs. */

static void
kvr_repair_in_vain(kvr_repair_t *r)
{
    switch (r->state) {

    case KVR_REPAIR_LAST:
        r->broken = true;
        kvr_repair_to(r, KVR_REPAIR_POINTER);
        break;

    case KVR_REPAIR_PAGE:
        r->broken = true;
        kvr_repair_to(r, KVR_REPAIR_END);
        break;

    default:
        r->asked = KVR_ASKED_IN_VAIN;
        break;
    }
}
