/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_health.h"

#include "../core/kvr_words.h"


#define KVR_CLOSED           0u
#define KVR_OPEN             1u
#define KVR_HALF_OPEN        2u

#define KVR_LEVEL_MAX        14u
#define KVR_LEVEL_RETURNED   15u     /* half-open before the wait was over */
#define KVR_IN_A_ROW_MAX     0x7fffu


/* The circuit, unpacked. */
typedef struct {
    uint64_t    ms;
    uint32_t    fails;
    uint32_t    level;
    uint32_t    phase;
} kvr_circuit_t;


#define kvr_tally(p)  (void) __atomic_fetch_add(p, 1, __ATOMIC_RELAXED)


size_t
kvr_health_size(uint32_t workers)
{
    _Static_assert(sizeof(kvr_health_t) % 64 == 0, "whole cache lines");

    return workers * sizeof(kvr_health_t);
}


/* ---- words -------------------------------------------------------------- */

/* rest: 16 bits. */

static uint64_t
kvr_health_word(uint64_t ms, uint64_t rest, uint32_t generation)
{
    return ms << 24 | rest << 8 | (generation & 0xff);
}


/*
 * The word if it belongs to this generation, or else the word of a new worker.
 */

static uint64_t
kvr_health_own(const uint64_t *word, uint32_t generation)
{
    uint64_t  w;

    w = kvr_load64(word);

    return (w & 0xff) == (generation & 0xff) ? w : (generation & 0xff);
}


static uint64_t
kvr_health_ms(uint64_t word)
{
    return word >> 24;
}


/*
 * Replaces `*is`, which kvr_health_own() returned for the word.  False: the
 * word has changed meanwhile, and *is becomes its present value.
 */

static bool
kvr_health_change(uint64_t *word, uint64_t *is, uint64_t to)
{
    uint64_t  has;

    has = kvr_load64(word);

    if (has != *is && (has & 0xff) == (*is & 0xff)) {
        *is = has;
        return false;
    }

    if (__atomic_compare_exchange_n(word, &has, to, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED))
    {
        return true;
    }

    if ((has & 0xff) == (*is & 0xff)) {
        *is = has;
    }

    return false;
}


static kvr_circuit_t
kvr_circuit_unpack(uint64_t word)
{
    kvr_circuit_t  c;

    c.ms = kvr_health_ms(word);
    c.fails = word >> 14 & 0x3ff;
    c.level = word >> 10 & 0xf;
    c.phase = word >> 8 & 3;

    return c;
}


static uint64_t
kvr_circuit_pack(const kvr_circuit_t *c, uint32_t generation)
{
    return kvr_health_word(c->ms, c->fails << 6 | c->level << 2 | c->phase,
                           generation);
}


/* ---- state -------------------------------------------------------------- */

/* The time for which a circuit stays open. */

static uint64_t
kvr_circuit_wait(const kvr_circuit_t *c, const kvr_health_params_t *p)
{
    uint64_t  wait, most;

    wait = (uint64_t) p->fail_timeout << c->level;
    most = kvr_max(p->fail_timeout, KVR_HEALTH_WAIT_MAX);

    return kvr_min(wait, most);
}


/*
 * The circuit's state; *left: the time until the worker may be tried, in ms.
 */

static kvr_health_state_t
kvr_circuit_state(const kvr_circuit_t *c, const kvr_health_params_t *p,
    uint64_t now_ms, uint64_t *left)
{
    uint64_t  until;

    *left = 0;

    if (p->max_fails == 0 || c->phase == KVR_CLOSED) {
        return KVR_HEALTH_OK;
    }

    until = c->phase == KVR_OPEN ? c->ms + kvr_circuit_wait(c, p) : c->ms;

    if (now_ms >= until) {
        return KVR_HEALTH_HALF_OPEN;
    }

    *left = until - now_ms;

    return KVR_HEALTH_FAILED;
}


static double
kvr_health_share(const kvr_health_t *h, uint32_t generation,
    const kvr_health_params_t *p, uint64_t now_ms)
{
    double    share;
    uint64_t  since;

    if (p->slow_start == 0) {
        return 1;
    }

    since = kvr_health_ms(kvr_health_own(&h->since, generation));

    if (since == 0 || now_ms >= since + p->slow_start) {
        return 1;
    }

    share = now_ms > since ? (double) (now_ms - since) / p->slow_start : 0;

    return kvr_max(share, KVR_HEALTH_SHARE);
}


kvr_health_state_t
kvr_health_state(const kvr_health_t *h, uint32_t generation,
    const kvr_health_params_t *p, uint64_t now_ms, double *share)
{
    uint64_t            left;
    kvr_circuit_t       c;
    kvr_health_state_t  state;

    *share = 1;

    if (p->checked && kvr_health_down(h, generation)) {
        return KVR_HEALTH_DOWN;
    }

    if (now_ms < kvr_health_ms(kvr_health_own(&h->away, generation))) {
        return KVR_HEALTH_AWAY;
    }

    c = kvr_circuit_unpack(kvr_health_own(&h->circuit, generation));
    state = kvr_circuit_state(&c, p, now_ms, &left);

    if (state != KVR_HEALTH_OK) {
        return state;
    }

    *share = kvr_health_share(h, generation, p, now_ms);

    return *share < 1 ? KVR_HEALTH_SLOW_START : KVR_HEALTH_OK;
}


void
kvr_health_view(const kvr_health_t *h, uint32_t generation,
    const kvr_health_params_t *p, uint64_t now_ms, kvr_health_view_t *view)
{
    uint64_t       since, left, away;
    kvr_circuit_t  c;

    view->state = kvr_health_state(h, generation, p, now_ms, &view->share);

    c = kvr_circuit_unpack(kvr_health_own(&h->circuit, generation));

    view->fails = c.phase == KVR_CLOSED && now_ms > c.ms + p->fail_timeout
                  ? 0 : c.fails;

    (void) kvr_circuit_state(&c, p, now_ms, &left);
    away = kvr_health_ms(kvr_health_own(&h->away, generation));

    if (away > now_ms) {
        left = kvr_max(left, away - now_ms);
    }

    view->left = (int64_t) left;

    since = kvr_health_ms(kvr_health_own(&h->since, generation));
    view->since = since ? (int64_t) (now_ms > since ? now_ms - since : 0) : -1;

    kvr_copy_words(&view->counters, &h->counters,
                   sizeof(kvr_health_counters_t) / 8);
}


/* ---- changes ------------------------------------------------------------ */

static void
kvr_health_since(kvr_health_t *h, uint32_t generation, uint64_t now_ms)
{
    kvr_put64(&h->since, kvr_health_word(now_ms, 0, generation));
}


void
kvr_health_begin(kvr_health_t *h, uint32_t generation, uint64_t now_ms)
{
    uint32_t  i;
    uint64_t  none, *counters;

    none = kvr_health_word(0, 0, generation);

    if ((kvr_load64(&h->since) & 0xff) != none) {
        counters = (uint64_t *) &h->counters;

        for (i = 0; i < sizeof(kvr_health_counters_t) / 8; i++) {
            kvr_put64(&counters[i], 0);
        }
    }

    kvr_put64(&h->away, none);
    kvr_put64(&h->checks, none);
    kvr_put64(&h->due.at_ms, 0);
    kvr_put64(&h->circuit, none);

    kvr_health_since(h, generation, now_ms);
}


bool
kvr_health_take(kvr_health_t *h, uint32_t generation,
    const kvr_health_params_t *p, uint64_t now_ms, bool anyhow,
    kvr_ticket_t *ticket)
{
    double              share;
    uint64_t            is, to, left;
    kvr_circuit_t       c;
    kvr_health_state_t  state;

    ticket->probe = 0;
    ticket->out = 0;

    is = kvr_health_own(&h->circuit, generation);

    for ( ;; ) {
        c = kvr_circuit_unpack(is);

        state = kvr_health_state(h, generation, p, now_ms, &share);

        if (kvr_health_usable(state)) {
            state = kvr_circuit_state(&c, p, now_ms, &left);
        }

        if (state != KVR_HEALTH_HALF_OPEN) {
            break;
        }

        c.phase = KVR_HALF_OPEN;
        c.ms = now_ms + p->fail_timeout;
        to = kvr_circuit_pack(&c, generation);

        if (kvr_health_change(&h->circuit, &is, to)) {
            ticket->probe = to;
            ticket->out = 1;
            kvr_tally(&h->counters.probes);
            break;
        }
    }

    if (!kvr_health_usable(state)) {

        if (!anyhow) {
            return false;
        }

        ticket->out = 1;
    }

    kvr_tally(&h->counters.attempts);

    return true;
}


bool
kvr_health_failed(kvr_health_t *h, uint32_t generation,
    const kvr_health_params_t *p, uint64_t now_ms, kvr_failure_t how,
    kvr_ticket_t *ticket)
{
    bool           opened;
    uint64_t       is;
    kvr_circuit_t  c;

    kvr_tally(&h->counters.failures[how]);

    if (p->max_fails == 0) {
        return false;
    }

    is = kvr_health_own(&h->circuit, generation);

    for ( ;; ) {
        c = kvr_circuit_unpack(is);
        opened = false;

        if (c.phase == KVR_CLOSED) {

            if (c.fails == 0 || now_ms > c.ms + p->fail_timeout) {
                c.fails = 0;
                c.ms = now_ms;
            }

            c.fails = kvr_min(c.fails + 1, KVR_FAILS_MAX);

            if (c.fails >= p->max_fails) {
                opened = true;
                c.phase = KVR_OPEN;
                c.level = 0;
                c.ms = now_ms;
            }

        } else if (c.phase == KVR_HALF_OPEN && ticket->probe) {
            c.phase = KVR_OPEN;
            c.level = c.level == KVR_LEVEL_RETURNED
                      ? 0 : kvr_min(c.level + 1, KVR_LEVEL_MAX);
            c.ms = now_ms;

        } else {

            /* the circuit is open already */

            break;
        }

        if (kvr_health_change(&h->circuit, &is,
                              kvr_circuit_pack(&c, generation)))
        {
            break;
        }
    }

    ticket->probe = 0;

    if (opened) {
        kvr_tally(&h->counters.opened);

        if (!p->checked || !kvr_health_down(h, generation)) {
            kvr_health_since(h, generation, now_ms);
        }
    }

    return opened;
}


bool
kvr_health_answered(kvr_health_t *h, uint32_t generation, uint64_t now_ms,
    kvr_ticket_t *ticket)
{
    uint64_t  is;

    if (!ticket->out) {
        return false;
    }

    ticket->out = 0;
    ticket->probe = 0;

    is = kvr_health_own(&h->circuit, generation);

    while (kvr_circuit_unpack(is).phase != KVR_CLOSED) {

        if (kvr_health_change(&h->circuit, &is,
                              kvr_health_word(0, 0, generation)))
        {
            kvr_health_since(h, generation, now_ms);
            return true;
        }
    }

    return false;
}


void
kvr_health_aborted(kvr_health_t *h, uint32_t generation, uint64_t now_ms,
    kvr_ticket_t *ticket)
{
    uint64_t       is;
    kvr_circuit_t  c;

    kvr_tally(&h->counters.aborted);

    if (ticket->probe) {
        is = ticket->probe;

        c = kvr_circuit_unpack(is);
        c.ms = now_ms;

        /* fails if another probe was sent since: that one counts now */

        (void) kvr_health_change(&h->circuit, &is,
                                 kvr_circuit_pack(&c, generation));
        ticket->probe = 0;
    }
}


void
kvr_health_pause(kvr_health_t *h, uint32_t generation, uint64_t now_ms,
    uint64_t for_ms)
{
    kvr_put64(&h->away, kvr_health_word(now_ms + kvr_min(for_ms,
                                                       KVR_HEALTH_AWAY_MAX),
                                        0, generation));
    kvr_tally(&h->counters.pauses);
}


bool
kvr_health_returned(kvr_health_t *h, uint32_t generation, uint64_t now_ms)
{
    uint64_t       is;
    kvr_circuit_t  c;

    is = kvr_health_own(&h->circuit, generation);

    for ( ;; ) {
        c = kvr_circuit_unpack(is);

        if (c.phase != KVR_OPEN) {
            return false;
        }

        c.phase = KVR_HALF_OPEN;
        c.level = KVR_LEVEL_RETURNED;
        c.ms = now_ms;

        if (kvr_health_change(&h->circuit, &is,
                              kvr_circuit_pack(&c, generation)))
        {
            return true;
        }
    }
}


/* ---- active checks ------------------------------------------------------ */

bool
kvr_health_due(kvr_health_t *h, uint32_t generation, uint64_t now_ms,
    uint64_t next_ms)
{
    return kvr_due_take(&h->due, generation, now_ms, next_ms - now_ms,
                        UINT64_MAX);
}


bool
kvr_health_checked(kvr_health_t *h, uint32_t generation, uint64_t now_ms,
    bool passed, uint32_t rises, uint32_t falls)
{
    bool           down, changed;
    uint32_t       n;
    uint64_t       is, circuit;
    kvr_circuit_t  c;

    kvr_tally(&h->counters.checks);

    if (!passed) {
        kvr_tally(&h->counters.checks_failed);
    }

    is = kvr_health_own(&h->checks, generation);

    do {
        down = is >> 8 & 1;
        n = is >> 9 & KVR_IN_A_ROW_MAX;

        /*
         * the number of checks in a row whose results differ from the present
         * state
         */

        n = passed == down ? kvr_min(n + 1, KVR_IN_A_ROW_MAX) : 0;
        changed = n != 0 && n >= (down ? rises : falls);

        if (changed) {
            down = !down;
            n = 0;
        }

    } while (!kvr_health_change(&h->checks, &is,
                                kvr_health_word(now_ms, n << 1 | down,
                                                generation)));

    circuit = kvr_health_own(&h->circuit, generation);
    c = kvr_circuit_unpack(circuit);

    /* a worker that requests had found out of order is out since then */

    if (changed && (passed || c.phase == KVR_CLOSED)) {
        kvr_health_since(h, generation, now_ms);
    }

    if (!passed) {
        return changed;
    }

    if (changed) {
        memset(&c, 0, sizeof(kvr_circuit_t));

    } else if (c.phase == KVR_OPEN && c.level) {

        /* the worker is up: the next wait is as short as the first one */

        c.level = 0;

    } else {
        return changed;
    }

    /* if another process was quicker, its value stays */

    (void) kvr_health_change(&h->circuit, &circuit,
                             kvr_circuit_pack(&c, generation));

    return changed;
}


bool
kvr_health_down(const kvr_health_t *h, uint32_t generation)
{
    return kvr_health_own(&h->checks, generation) >> 8 & 1;
}


/* ---- words for people --------------------------------------------------- */

const char *
kvr_health_name(uint32_t state)
{
    static const char  *names[] = {
        "ok", "slow_start", "half_open", "failed", "away", "down"
    };

    return state < KVR_HEALTH_STATES ? names[state] : "ok";
}


const char *
kvr_failure_name(uint32_t how)
{
    static const char  *names[] = {
        "connect", "timeout", "reset", "invalid", "status", "cut"
    };

    return how < KVR_FAILURES ? names[how] : "reset";
}
