/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Slots: a table of fixed size in shared memory, which forgets what was not
 * used for the longest.  A slot has a key of 128 bits, which must be random,
 * and KVR_SLOTS_WORDS words of data.  It is found in a set of KVR_SLOTS_WAYS
 * slots:
 *
 *     word of a slot:  32 bits of its key │ when it was used (32 bits, ms)
 *     slot:            version │ key │ checksum │ 60 words
 *
 * VERIFIED BEFORE USE.  A slot counts only if its version is even and was the
 * same before and after it was read, if it has the whole key, and if its
 * checksum is right.
 *
 * WHO MAY WRITE.  Any process, at any time, without a lock.  A writer takes a
 * slot by exchanging its word, then makes the version odd, writes, and makes
 * the version even.  If a slot's version is odd, other writers leave the slot
 * alone for KVR_SLOTS_DEAD ms.
 *
 * WHAT READERS SEE.  The data as one writer wrote it, or nothing.  Two writers
 * of one key at the same time may leave it in two slots: either is found.
 *
 * WHAT HAPPENS WHEN A PROCESS DIES, AT ANY INSTRUCTION.  A slot that it was
 * writing has an odd version: it is not found, and the next writer that wants
 * it takes it after KVR_SLOTS_DEAD ms.  A slot that it had taken and not begun
 * is not found either, and grows old like any other.  A counter may lack one.
 * A writer that was stopped for long, and goes on when its slot was taken by
 * another, can make that slot's checksum wrong: it is not found.
 *
 * A handle serves any number of threads of one process.
 */


#ifndef KVR_SLOTS_H_INCLUDED
#define KVR_SLOTS_H_INCLUDED


#include "../kvr.h"


#define KVR_SLOTS_SIZE      512     /* bytes of a slot */
#define KVR_SLOTS_WORDS     60      /* 8 bytes each, of its data */
#define KVR_SLOTS_WAYS      32      /* slots of a set */
#define KVR_SLOTS_DEAD      1000    /* ms */
#define KVR_SLOTS_WHY       160     /* bytes of a reason */


/* Numbers since the memory was laid out. */
typedef struct {
    uint64_t    slots;
    uint64_t    used;               /* slots that have been written */
    uint64_t    evicted;            /* times that a key was forgotten */
    uint64_t    torn;               /* times that a slot was read while it was
                                       written, or after its writer died */
} kvr_slots_stats_t;


typedef struct kvr_slots_zone_s  kvr_slots_zone_t;
typedef struct kvr_slot_s  kvr_slot_t;

typedef struct {
    kvr_slots_zone_t  *zone;
    uint64_t          *words;
    kvr_slot_t        *slots;
    uint64_t           nsets;
    uint64_t           seed;        /* random, the memory's own */
} kvr_slots_t;


/*
 * Lays the memory out: size bytes at base, which is aligned to 64 bytes.
 * version: of what the data means.  KVR_INVALID: it is too small; KVR_ERROR:
 * no random numbers; why has a sentence.
 */
kvr_rc_t kvr_slots_format(void *base, size_t size, uint64_t version,
    char why[KVR_SLOTS_WHY]);

/* KVR_INVALID: the memory has another layout, version or size; why says so. */
kvr_rc_t kvr_slots_attach(kvr_slots_t *t, void *base, size_t size,
    uint64_t version, char why[KVR_SLOTS_WHY]);

/*
 * Copies the data of a key, and notes the use.  False: it is not there.
 * now_ms: monotonic, the same clock in all processes.
 */
bool kvr_slots_get(kvr_slots_t *t, const uint64_t key[2], uint64_t now_ms,
    uint64_t *data);

/* KVR_BUSY: other writers are at work in the set; the data is not kept. */
kvr_rc_t kvr_slots_put(kvr_slots_t *t, const uint64_t key[2], uint64_t now_ms,
    const uint64_t *data);

void kvr_slots_stats(const kvr_slots_t *t, kvr_slots_stats_t *s);


#endif /* KVR_SLOTS_H_INCLUDED */
