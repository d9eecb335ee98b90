/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The turn cache: block hashes of texts whose beginnings come again, as those
 * of a chat do with each turn.  Of a text that was kept up to some byte, only
 * the rest has to be encoded and hashed.
 *
 *     text      system ... <|end|> user ... <|end|> assistant ... <|end|> ...
 *     cuts                        ↑                ↑                     ↑
 *     entries                     A  ←─ parent ──  B  ←───── parent ──── C
 *
 * A CUT is a place in a text behind a special token, where the tokenizer's
 * sections are independent of each other: the ids of the text before the cut
 * are the same whatever text follows.  The encoder knows the cuts, and digests
 * the text before each of them by one running XXH3-128 with the cache's seed.
 *
 * A KEY is the XXH3-128 of a cut's digest and byte, and of the terms: all else
 * that ids and hashes follow from.  A LoRA's name and a cache salt are terms,
 * so that requests with different salts never find each other's entries.  The
 * seed is random, and is the zone's own.
 *
 * AN ENTRY has the key of the cut before it which it continues (the parent),
 * the hashes of the blocks that became complete since then, and the ids behind
 * the last complete block.  An entry whose parent is gone is a miss.  An entry
 * lies in one slot or more of kvr_slots.h.  A find uses all slots that it
 * reads, so that the entries of a session grow old together.
 *
 * VERIFIED BEFORE USE.  Beside what kvr_slots.h verifies, the parent of an
 * entry must be an entry of this very text: the parent's key must be that of
 * the text's own cut at the parent's byte, and both must agree on the number
 * of ids.
 *
 * WHO MAY WRITE.  Any process, at any time, without a lock.
 *
 * WHAT READERS SEE.  An entry as it was kept, or none.
 *
 * WHAT HAPPENS WHEN A PROCESS DIES, AT ANY INSTRUCTION.  The entry that the
 * process was keeping is a miss, as soon as one of its slots is read that was
 * not written.  The slots that were written are found by nobody, and grow old.
 * A counter may lack one.  See kvr_slots.h for a slot.
 *
 * A handle serves any number of threads of one process.
 */


#ifndef KVR_TURNS_H_INCLUDED
#define KVR_TURNS_H_INCLUDED


#include "kvr_slots.h"

#include "../core/kvr_contract.h"


#define KVR_TURNS_PIECES    1024    /* slots of an entry: 61,000 blocks; and at
                                       most an eighth of the zone's slots */
#define KVR_TURNS_DEPTH     1024    /* entries of a chain */
#define KVR_TURNS_PROBES    256     /* cuts that are looked up, the deepest
                                       first */
#define KVR_TURNS_SHARED    1024    /* bytes: the first cut behind these is
                                       kept for other sessions: it most likely
                                       ends the system prompt */


/* All that ids and hashes follow from, beside the text. */
typedef struct {
    uint64_t        tokenizer;      /* digest of its file */
    uint32_t        flags;          /* of the encoder, such as a BOS */
    uint32_t        tables;         /* version of the encoder's tables */
    kvr_contract_t  contract;
    uint64_t        seed;           /* of the chain's hashes */
    const char     *lora;
    size_t          lora_len;
    const char     *salt;
    size_t          salt_len;
} kvr_turns_terms_t;


typedef struct {
    uint64_t    digest[2];          /* of the text before the cut, by
                                       kvr_turns_seed() */
    uint64_t    byte;               /* bytes of that text; above 0 */
} kvr_turns_cut_t;


/* An entry: what is known of a text up to a cut.  tokens 0: of none. */
typedef struct {
    uint64_t    key[2];
    uint32_t    byte;
    uint32_t    tokens;             /* ids of the text before the cut */
    uint32_t    blocks;             /* of them, complete */
    uint32_t    tail;               /* ids behind these blocks, at most a
                                       block's */
    uint32_t    depth;              /* entries that this one continues */
} kvr_turns_entry_t;


/* Numbers since the memory was laid out. */
typedef struct {
    kvr_slots_stats_t  slots;
    uint64_t           hits;        /* finds */
    uint64_t           misses;      /* the same */
    uint64_t           tokens;      /* ids of hits: not encoded again */
    uint64_t           kept;        /* entries */
    uint64_t           lost;        /* entries found without their parents or
                                       without slots of theirs */
    uint64_t           too_large;   /* entries refused */
    uint64_t           busy;        /* entries given up: other writers were at
                                       work in a set */
} kvr_turns_stats_t;


struct kvr_turns_zone_s;

typedef struct {
    struct kvr_turns_zone_s  *zone;
    kvr_slots_t               slots;
    uint64_t                  seed;
    uint32_t                  max_pieces;
} kvr_turns_t;


/*
 * Lays the memory out: size bytes at base, which is aligned to 64 bytes.
 * KVR_INVALID: it is too small; KVR_ERROR: no random numbers; why has a
 * sentence.
 */
kvr_rc_t kvr_turns_format(void *base, size_t size, char why[KVR_SLOTS_WHY]);

/* KVR_INVALID: the memory has no such layout, or another size; why says so. */
kvr_rc_t kvr_turns_attach(kvr_turns_t *t, void *base, size_t size,
    char why[KVR_SLOTS_WHY]);

/* The seed of the digests in cuts. */
uint64_t kvr_turns_seed(const kvr_turns_t *t);

/*
 * The first of n cuts that is kept for other sessions: the first one behind
 * KVR_TURNS_SHARED bytes; n: there is none.
 */
size_t kvr_turns_shared(const kvr_turns_cut_t *cuts, size_t n);

/*
 * Finds the deepest entry among n cuts of a text, which are in the text's
 * order.  hashes: room for max_blocks; the first e->blocks are written.  tail:
 * room for a block's ids; e->tail are written.  An entry with more blocks than
 * max_blocks is passed over.  now_ms: monotonic, the same clock in all
 * processes.
 *
 * KVR_DECLINED: there is none, and *e is an entry of none; what lies in hashes
 * and tail is of no use then.
 */
kvr_rc_t kvr_turns_find(kvr_turns_t *t, const kvr_turns_terms_t *terms,
    const kvr_turns_cut_t *cuts, size_t n, uint64_t *hashes,
    size_t max_blocks, uint32_t *tail, uint64_t now_ms, kvr_turns_entry_t *e);

/*
 * Keeps an entry for a cut before which there are so many ids.  hashes: those
 * of all complete blocks from the text's start; tail: the ids behind them.
 * *e: an entry of an earlier cut of the same text and terms, or of none;
 * becomes the entry that was kept.
 *
 * KVR_FULL: the entry would be too large.  KVR_BUSY: no slot was to be had.
 * In both cases *e stays.
 */
kvr_rc_t kvr_turns_keep(kvr_turns_t *t, const kvr_turns_terms_t *terms,
    const kvr_turns_cut_t *cut, uint32_t tokens, const uint64_t *hashes,
    const uint32_t *tail, uint64_t now_ms, kvr_turns_entry_t *e);

void kvr_turns_stats(const kvr_turns_t *t, kvr_turns_stats_t *s);


#endif /* KVR_TURNS_H_INCLUDED */
