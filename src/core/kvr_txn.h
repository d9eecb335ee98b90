/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Transactions over shared memory, by an undo log that is in the memory too.
 *
 *     kvr_txn_begin(m);
 *     kvr_set32(m, &thing->count, thing->count + 1);     logs, then stores
 *     …
 *     kvr_txn_commit(m);            or kvr_txn_rollback(m): as if nothing was
 *
 * Before a word is changed, its address and old value go to the log.  A commit
 * empties the log by one store.  When the writer dies, whoever takes its lock
 * finds the log not empty and rolls back: kvr_txn_rollback() works the same
 * in another process.  The log of a transaction that did not come to its
 * commit is all there is to know, so a rollback may itself be killed and
 * begun again.
 *
 * Not logged are: memory that was allocated in this very transaction (nobody
 * can reach it after a rollback), and versions.
 *
 * VERSIONS (seqlocks).  kvr_version_lock() makes a version odd and notes that
 * in the log; kvr_version_unlock() makes it even again.  Versions are never
 * rolled back, they only advance: a reader that saw the torn state must find
 * the version changed.  A rollback leaves every version noted even, and
 * higher than any reader may have seen.
 *
 * SEVERAL WORDS at once are noted one by one, published together, and stored
 * only then, by kvr_put…(): cheaper than a record each.
 *
 *     u = kvr_txn_note_begin(m, 2);
 *     kvr_txn_note(&u, m, &thing->a, KVR_UNDO_32, thing->a);
 *     kvr_txn_note(&u, m, &thing->b, KVR_UNDO_16, thing->b);
 *     kvr_txn_note_end(m, u);
 *
 * The log has KVR_TXN_RECORDS records.  A writer keeps its transactions below
 * that, see kvr_txn_room().  Running over is an error in this program and
 * aborts the process; the next owner then rolls back.
 *
 * A process's death loses none of its stores, and every later reader sees
 * them in program order (the kernel's switch away from it is a full barrier),
 * so that the order in which log and memory are written is the compiler's
 * affair alone.  A power failure loses the whole memory anyway.
 *
 * All functions are for the owner of the zone's lock.
 */


#ifndef KVR_TXN_H_INCLUDED
#define KVR_TXN_H_INCLUDED


#include "kvr_words.h"


#define KVR_TXN_RECORDS      16384      /* 256 KiB; events are cut where 6,144
                                           are left, enough for a step */


typedef struct {
    uint64_t    where;              /* offset from the base << 2 | kind */
    uint64_t    old;
} kvr_undo_t;


typedef struct {
    uint64_t    n;                  /* records; 0: at rest */
    kvr_undo_t  records[KVR_TXN_RECORDS];
} kvr_journal_t;


/* A piece of memory with its log, as one process maps it. */
typedef struct {
    char           *base;
    size_t          size;
    kvr_journal_t  *journal;
} kvr_mem_t;


/* Kinds of undo records. */
#define KVR_UNDO_64          0u
#define KVR_UNDO_32          1u
#define KVR_UNDO_16          2u
#define KVR_UNDO_VERSION     3u


#define kvr_txn_barrier()    __atomic_signal_fence(__ATOMIC_SEQ_CST)


/* Undoes what the log holds, newest first, and empties it; returns how many
 * records there were. */
uint64_t kvr_txn_rollback(kvr_mem_t *m);

/* Aborts the process: the log is full, or the memory can't be as it is. */
void kvr_txn_overflow(void) __attribute__((noreturn, cold));
void kvr_txn_damaged(const char *what) __attribute__((noreturn, cold));


/* The number of records that still fit. */
static inline uint64_t
kvr_txn_room(const kvr_mem_t *m)
{
    return KVR_TXN_RECORDS - m->journal->n;
}


static inline void
kvr_txn_commit(kvr_mem_t *m)
{
    kvr_txn_barrier();
    __atomic_store_n(&m->journal->n, 0, __ATOMIC_RELAXED);
    kvr_txn_barrier();
}


static inline void
kvr_txn_log(kvr_mem_t *m, const void *p, uint32_t kind, uint64_t old)
{
    uint64_t        n;
    kvr_journal_t  *j;

    j = m->journal;
    n = j->n;

    if (__builtin_expect(n == KVR_TXN_RECORDS, 0)) {
        kvr_txn_overflow();
    }

    j->records[n].where = (uint64_t) ((const char *) p - m->base) << 2 | kind;
    j->records[n].old = old;

    kvr_txn_barrier();
    __atomic_store_n(&j->n, n + 1, __ATOMIC_RELAXED);
    kvr_txn_barrier();
}


/* Begins at most n notes: the record of the first one. */
static inline kvr_undo_t *
kvr_txn_note_begin(kvr_mem_t *m, uint32_t n)
{
    kvr_journal_t  *j;

    j = m->journal;

    if (__builtin_expect(j->n > KVR_TXN_RECORDS - n, 0)) {
        kvr_txn_overflow();
    }

    return &j->records[j->n];
}


static inline void
kvr_txn_note(kvr_undo_t **u, const kvr_mem_t *m, const void *p,
    uint32_t kind, uint64_t old)
{
    (*u)->where = (uint64_t) ((const char *) p - m->base) << 2 | kind;
    (*u)->old = old;
    (*u)++;
}


/* u: behind the last note. */
static inline void
kvr_txn_note_end(kvr_mem_t *m, const kvr_undo_t *u)
{
    kvr_txn_barrier();
    __atomic_store_n(&m->journal->n, (uint64_t) (u - m->journal->records),
                     __ATOMIC_RELAXED);
    kvr_txn_barrier();
}


static inline void
kvr_set64(kvr_mem_t *m, uint64_t *p, uint64_t v)
{
    kvr_txn_log(m, p, KVR_UNDO_64, *p);
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
}


static inline void
kvr_set32(kvr_mem_t *m, uint32_t *p, uint32_t v)
{
    kvr_txn_log(m, p, KVR_UNDO_32, *p);
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
}


static inline void
kvr_set16(kvr_mem_t *m, uint16_t *p, uint16_t v)
{
    kvr_txn_log(m, p, KVR_UNDO_16, *p);
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
}


/* Changes the i-th word of a struct, with an undo record. */
static inline void
kvr_set_word(kvr_mem_t *m, void *p, uint32_t i, uint64_t v)
{
    kvr_word_t  *w;

    w = (kvr_word_t *) p + i;

    kvr_txn_log(m, w, KVR_UNDO_64, *w);
    __atomic_store_n(w, v, __ATOMIC_RELAXED);
}


/* A reader that sees an odd version, or another at the end than at the
 * beginning, has read torn memory. */

static inline void
kvr_version_lock_noted(uint32_t *version)
{
#if (KVR_TSAN)
    /* tells it that the stamps of readers (below) come before this */
    (void) __atomic_fetch_add(version, 1, __ATOMIC_ACQUIRE);
#else
    __atomic_store_n(version, kvr_load32(version) + 1, __ATOMIC_RELAXED);
#endif

    kvr_fence(__ATOMIC_RELEASE);
}


static inline void
kvr_version_lock(kvr_mem_t *m, uint32_t *version)
{
    kvr_txn_log(m, version, KVR_UNDO_VERSION, 0);
    kvr_version_lock_noted(version);
}


static inline void
kvr_version_unlock(uint32_t *version)
{
    __atomic_store_n(version, kvr_load32(version) + 1, __ATOMIC_RELEASE);
}


/*
 * For readers: sets the stamp, a second, in the word behind a version, when
 * it is older than now; another process's clock may be ahead of ours.  Version
 * and stamp change together, from what the reader saw of both: where something
 * else lies by then, nothing is written.  Aligned to 8 bytes.
 */
static inline void
kvr_version_stamp(void *p, uint32_t version, uint32_t stamp, uint32_t now)
{
    union {
        uint64_t  word;
        uint32_t  is[2];
    } old, new;

    if ((int32_t) (now - stamp) <= 0) {
        return;
    }

    old.is[0] = version;
    old.is[1] = stamp;
    new.is[0] = version;
    new.is[1] = now;

    (void) __atomic_compare_exchange_n((kvr_word_t *) p, &old.word, new.word,
                                       false, __ATOMIC_RELEASE,
                                       __ATOMIC_RELAXED);
}


#endif /* KVR_TXN_H_INCLUDED */
