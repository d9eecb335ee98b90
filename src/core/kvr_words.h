/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Access to memory that one process writes while others read it without a
 * lock.  A version guards such memory (kvr_txn.h): a reader reads the version
 * again after the memory, and if the version has changed, discards what it has
 * read.
 *
 * Single words are loaded and stored by relaxed atomics.  Rows of words are
 * compared and copied by the C library, which uses the widest instructions of
 * the CPU and no atomics.  If a row changes while it is read, the copy is a
 * mixture of old and new words, and is discarded.
 *
 * By the letter of C11 that is a data race.  All such races of the project are
 * in this file.  In builds for ThreadSanitizer (make tsan) these functions use
 * relaxed atomics word by word.  What the sanitizer then reports is an access
 * to shared memory by neither these functions nor under a lock.
 *
 * The sanitizer does not know fences either.  In its builds kvr_fence() is an
 * atomic exchange of a word on the caller's own stack: this orders the CPU's
 * accesses, but tells the sanitizer of no order between threads, so that no
 * report is suppressed.
 */


#ifndef KVR_WORDS_H_INCLUDED
#define KVR_WORDS_H_INCLUDED


#include "../kvr.h"


#if defined(__SANITIZE_THREAD__)
#define KVR_TSAN  1

#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KVR_TSAN  1
#endif
#endif


/* A word of memory of any type. */
typedef uint64_t __attribute__((may_alias))  kvr_word_t;
typedef uint32_t __attribute__((may_alias))  kvr_half_t;
typedef uint16_t __attribute__((may_alias))  kvr_quarter_t;


#define kvr_load16(p)        __atomic_load_n(p, __ATOMIC_RELAXED)
#define kvr_load32(p)        __atomic_load_n(p, __ATOMIC_RELAXED)
#define kvr_load64(p)        __atomic_load_n(p, __ATOMIC_RELAXED)

/* Stores without the log, into memory that was allocated just now: it may
 * have been another's, and be looked at by readers who don't know it yet. */

#define kvr_put16(p, v)      __atomic_store_n(p, v, __ATOMIC_RELAXED)
#define kvr_put32(p, v)      __atomic_store_n(p, v, __ATOMIC_RELAXED)
#define kvr_put64(p, v)      __atomic_store_n(p, v, __ATOMIC_RELAXED)


#if (KVR_TSAN)

static inline void
kvr_fence(int order)
{
    uint64_t  word;

    word = 0;
    (void) __atomic_exchange_n(&word, 1, __ATOMIC_SEQ_CST);
}

#else

/* __ATOMIC_ACQUIRE between reading and the second look at a version,
 * __ATOMIC_RELEASE between making it odd and writing. */
#define kvr_fence(order)     __atomic_thread_fence(order)

#endif


/* Copies n words of 8 bytes; either side may be shared. */
static inline void
kvr_copy_words(void *to, const void *from, size_t n)
{
#if (KVR_TSAN)
    size_t             i;
    kvr_word_t        *t = to;
    const kvr_word_t  *f = from;

    for (i = 0; i < n; i++) {
        kvr_put64(&t[i], kvr_load64(&f[i]));
    }
#else
    memcpy(to, from, n * sizeof(uint64_t));
#endif
}


/* Copies n halves of 4 bytes; either side may be shared. */
static inline void
kvr_copy_halves(void *to, const void *from, size_t n)
{
#if (KVR_TSAN)
    size_t             i;
    kvr_half_t        *t = to;
    const kvr_half_t  *f = from;

    for (i = 0; i < n; i++) {
        kvr_put32(&t[i], kvr_load32(&f[i]));
    }
#else
    memcpy(to, from, n * sizeof(uint32_t));
#endif
}


/* Zeroes n words of 8 bytes. */
static inline void
kvr_zero_words(void *to, size_t n)
{
#if (KVR_TSAN)
    size_t       i;
    kvr_word_t  *t = to;

    for (i = 0; i < n; i++) {
        kvr_put64(&t[i], 0);
    }
#else
    memset(to, 0, n * sizeof(uint64_t));
#endif
}


/* Are n words of 8 bytes the same?  Either side may be shared. */
static inline bool
kvr_same_words(const void *a, const void *b, size_t n)
{
#if (KVR_TSAN)
    size_t             i;
    const kvr_word_t  *p = a;
    const kvr_word_t  *q = b;

    for (i = 0; i < n && kvr_load64(&p[i]) == kvr_load64(&q[i]); i++) {
        /* void */
    }

    return i == n;
#else
    return memcmp(a, b, n * sizeof(uint64_t)) == 0;
#endif
}


#endif /* KVR_WORDS_H_INCLUDED */
