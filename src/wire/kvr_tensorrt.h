/*
 * Copyright (C) the nginx-kv-router authors
 *
 * TensorRT-LLM's events, JSON (docs/events.md): the fields of one event.
 * kvr_tensorrt_read.c reads them.  kvr_tensorrt.c checks the event and splits
 * it: its blocks can be in several tiers, its removals name no tier, and an
 * update moves a block to another tier.
 */


#ifndef KVR_TENSORRT_H_INCLUDED
#define KVR_TENSORRT_H_INCLUDED


#include "kvr_json_events.h"


typedef enum {
    KVR_TENSORRT_UNKNOWN,
    KVR_TENSORRT_CREATED,
    KVR_TENSORRT_STORED,
    KVR_TENSORRT_REMOVED,
    KVR_TENSORRT_UPDATED
} kvr_tensorrt_type_t;


/* A block's "lora_id". */
typedef enum {
    KVR_LORA_NONE = 0,
    KVR_LORA_NUMBER,
    KVR_LORA_OTHER
} kvr_tensorrt_lora_t;


typedef struct {
    uint64_t              hash;
    uint64_t              level;
    uint64_t              lora_id;
    uint32_t              tokens;       /* where its tokens end */
    uint32_t              mm;           /* where its multimodal hashes end */
    bool                  has_hash;
    kvr_tensorrt_lora_t   lora;
    kvr_why_t             why;          /* the reason not to index the block */
} kvr_tensorrt_block_t;


typedef struct {
    bool                  ready;        /* an event was read; parts of it are
                                           yet to come out */
    uint32_t              part;         /* the next that comes out */

    kvr_tensorrt_type_t   type;
    bool                  has_id;
    bool                  has_parent;
    bool                  has_hash;
    bool                  has_blocks;   /* the list */
    bool                  has_hashes;
    bool                  has_old;
    bool                  has_new;
    uint64_t              id;
    uint32_t              rank;
    uint32_t              window;       /* 0: unsaid */
    uint64_t              parent;
    uint64_t              hash;         /* of the block that is updated */
    uint64_t              old_level;
    uint64_t              new_level;

    uint32_t              nhashes;      /* removed, in the decoder's handles */
    uint32_t              nblocks;      /* in the decoder's blocks */
    uint32_t              ntokens;
    uint32_t              nmm;
    size_t                lora_len;
    size_t                salt_len;

    kvr_tensorrt_block_t  block;        /* the one we are in */
    bool                  block_salted;
    bool                  mm_hashed;    /* the key we are in has a hash */

    kvr_why_t             wrong;        /* the first */
    const char           *detail;
} kvr_tensorrt_t;


extern const kvr_json_events_t  kvr_tensorrt_events;


/* Refuses the event.  The first reason is kept. */
static inline void
kvr_tensorrt_wrong(kvr_tensorrt_t *t, kvr_why_t why, const char *detail)
{
    if (t->wrong == KVR_WHY_NONE) {
        t->wrong = why;
        t->detail = detail;
    }
}


/* Refuses the block.  The first reason is kept. */
static inline void
kvr_tensorrt_block_wrong(kvr_tensorrt_t *t, kvr_why_t why)
{
    if (t->block.why == KVR_WHY_NONE) {
        t->block.why = why;
    }
}


#endif /* KVR_TENSORRT_H_INCLUDED */
