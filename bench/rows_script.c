/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Scripts (script.py): chats, and a recorded trace.
 */


#include "index.h"
#include "script.h"


/* What playing a script took. */
typedef struct {
    double         store_ns;
    double         remove_ns;
    double         bytes;               /* before the first removal */
    uint64_t      *finds;               /* ns */
} rows_played_t;


static void rows_play(ix_t *ix, const script_t *s, rows_played_t *p);
static void rows_ask(ix_t *ix, const script_t *s, const script_op_t *op,
    uint64_t *took);


void
rows_script(const char *name, const char *file)
{
    ix_t           ix;
    char           row[64];
    double         bytes;
    script_t       s;
    rows_played_t  p;

    script_open(&s, file);
    p.finds = wl_alloc(s.nfinds * sizeof(uint64_t));
    ix_open(&ix, s.pairs, IX_PAIR_BYTES);

    rows_play(&ix, &s, &p);             /* the kernel gives memory now */
    bytes = p.bytes;
    rows_play(&ix, &s, &p);

    snprintf(row, sizeof(row), "%s: find", name);
    ix_say(row, "ns", ix_percentile(p.finds, s.nfinds, 50));
    snprintf(row, sizeof(row), "%s: find, p99", name);
    ix_say(row, "ns", ix_percentile(p.finds, s.nfinds, 99));
    snprintf(row, sizeof(row), "%s: store", name);
    ix_say(row, "ns/block", p.store_ns / s.pairs);
    snprintf(row, sizeof(row), "%s: remove", name);
    ix_say(row, "ns/block", p.remove_ns / s.pairs);
    snprintf(row, sizeof(row), "%s: memory a pair", name);
    ix_say(row, "bytes", bytes / s.pairs);

    ix_close(&ix);
    script_close(&s);
    free(p.finds);
}


/* Events that follow each other are timed together. */

static void
rows_play(ix_t *ix, const script_t *s, rows_played_t *p)
{
    uint32_t            i, n, kind;
    uint64_t            t, at;
    const script_op_t  *op;

    p->store_ns = 0;
    p->remove_ns = 0;
    p->bytes = 0;
    n = 0;

    for (i = 0; i < s->nops; /* void */ ) {
        kind = s->ops[i].kind;

        if (kind == SCRIPT_REMOVE && p->bytes == 0) {
            p->bytes = ix_bytes(ix);
        }

        t = wl_now();

        for ( /* void */ ; i < s->nops && s->ops[i].kind == kind; i++) {
            op = &s->ops[i];
            at = s->starts[op->prompt] + op->from;

            if (kind == SCRIPT_STORE) {
                ix_store(ix, op->worker,
                         op->from ? &s->handles[at - 1] : NULL,
                         &s->handles[at], &s->locals[at], op->n);

            } else if (kind == SCRIPT_REMOVE) {
                ix_remove(ix, op->worker, &s->handles[at], op->n);

            } else {
                rows_ask(ix, s, op, &p->finds[n++]);
            }
        }

        t = wl_now() - t;

        if (kind == SCRIPT_STORE) {
            p->store_ns += t;

        } else if (kind == SCRIPT_REMOVE) {
            p->remove_ns += t;
        }
    }

    ix_must_be_empty(ix);
}


static void
rows_ask(ix_t *ix, const script_t *s, const script_op_t *op, uint64_t *took)
{
    uint32_t         v, best, holders;
    uint64_t         warm;
    const uint64_t  *q;

    q = s->locals + s->starts[op->prompt];

    /* a prompt's hashes were made just before: they are in the cache */

    for (v = 0, warm = 0; v < op->n; v++) {
        warm ^= q[v];
    }

    __asm__ __volatile__ ("" : : "r" (warm));

    *took = ix_find(ix, q, op->n, &best);

    for (v = 0, holders = 0; v < WL_WORKERS; v++) {
        holders += ix->out.depths[2][v] != 0;
    }

    ix_must(best == op->from, "a script's find");
    ix_must(holders == op->holders, "who holds a script's prompt");
    ix_must(best == 0 || ix->out.depths[2][op->worker] == best,
            "the best holder of a script's prompt");
}
