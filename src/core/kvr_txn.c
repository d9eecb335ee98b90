/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_txn.h"

#include <stdio.h>
#include <stdlib.h>


/*
 * Three passes: all versions that were noted become odd, then the words get
 * their old values, then the versions become even.  A version that a reader
 * saw is thus never seen again with other contents, and a rollback that was
 * killed may be begun again at any point.
 */

uint64_t
kvr_txn_rollback(kvr_mem_t *m)
{
    void           *p;
    uint64_t        i, n;
    kvr_undo_t     *u;
    kvr_journal_t  *j;

    j = m->journal;
    n = j->n;

    if (n > KVR_TXN_RECORDS) {
        kvr_txn_overflow();
    }

    for (i = 0; i < n; i++) {
        u = &j->records[i];

        if ((u->where & 3) == KVR_UNDO_VERSION) {
            p = m->base + (u->where >> 2);
            __atomic_store_n((uint32_t *) p, *(uint32_t *) p | 1,
                             __ATOMIC_RELAXED);
        }
    }

    __atomic_thread_fence(__ATOMIC_RELEASE);

    for (i = n; i-- > 0; /* void */ ) {
        u = &j->records[i];
        p = m->base + (u->where >> 2);

        switch (u->where & 3) {

        case KVR_UNDO_64:
            __atomic_store_n((kvr_word_t *) p, u->old, __ATOMIC_RELAXED);
            break;

        case KVR_UNDO_32:
            __atomic_store_n((kvr_half_t *) p, (uint32_t) u->old,
                             __ATOMIC_RELAXED);
            break;

        case KVR_UNDO_16:
            __atomic_store_n((kvr_quarter_t *) p, (uint16_t) u->old,
                             __ATOMIC_RELAXED);
            break;
        }
    }

    for (i = 0; i < n; i++) {
        u = &j->records[i];

        if ((u->where & 3) == KVR_UNDO_VERSION) {
            p = m->base + (u->where >> 2);

            if (*(uint32_t *) p & 1) {
                kvr_version_unlock(p);
            }
        }
    }

    /* a rollback that is begun again counts twice, which does no harm */

    __atomic_store_n(&j->rollbacks, j->rollbacks + 1, __ATOMIC_RELAXED);

    kvr_txn_commit(m);

    return n;
}


void
kvr_txn_overflow(void)
{
    kvr_txn_damaged("the undo log is full");
}


void
kvr_txn_damaged(const char *what)
{
    fprintf(stderr, "kvr: the zone is damaged: %s\n", what);
    abort();
}
