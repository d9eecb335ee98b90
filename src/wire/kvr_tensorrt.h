/*
 * Copyright (C) the nginx-kv-router authors
 *
 * TensorRT-LLM's events, JSON (EVENTS.md section 4): an event while it is
 * read, and what was found in it.  kvr_tensorrt_read.c fills it in,
 * kvr_tensorrt.c judges it and takes it apart: its blocks may lie in several
 * tiers, its removals say none, and an update moves a block.
 */


#ifndef KVR_TENSORRT_H_INCLUDED
#define KVR_TENSORRT_H_INCLUDED


#include "kvr_pieces.h"


/* Where the parser is; the name is that of the container. */
typedef enum {
    KVR_IN_TOP,
    KVR_IN_LIST,
    KVR_IN_EVENT,
    KVR_IN_DATA,
    KVR_IN_BLOCKS,
    KVR_IN_BLOCK,
    KVR_IN_TOKENS,
    KVR_IN_TOKEN,
    KVR_IN_MM_KEYS,
    KVR_IN_MM_KEY,
    KVR_IN_HASHES,
    KVR_IN_LEVEL
} kvr_tensorrt_place_t;


typedef enum {
    KVR_NAME_OTHER,
    KVR_NAME_EVENT_ID,
    KVR_NAME_DATA,
    KVR_NAME_WINDOW,
    KVR_NAME_RANK,
    KVR_NAME_TYPE,
    KVR_NAME_PARENT,
    KVR_NAME_BLOCKS,
    KVR_NAME_HASHES,
    KVR_NAME_HASH,
    KVR_NAME_LEVEL,
    KVR_NAME_LORA_ID,
    KVR_NAME_LORA_NAME,
    KVR_NAME_TOKENS,
    KVR_NAME_MM_KEYS,
    KVR_NAME_SALT,
    KVR_NAME_TOKEN_ID,
    KVR_NAME_EXTRA_ID,
    KVR_NAME_MM_HASH,
    KVR_NAME_OLD,
    KVR_NAME_NEW
} kvr_tensorrt_name_t;


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


struct kvr_tensorrt_s {
    kvr_pieces_t          text;

    kvr_tensorrt_place_t  place;
    bool                  in_list;
    kvr_tensorrt_name_t   name;
    uint32_t              skipping;     /* containers that we are inside of */

    uint32_t              strays;       /* values where an event should be */
    bool                  ready;        /* the event is whole */
    bool                  judged;
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
    uint32_t              nblocks;
    uint32_t              ntokens;
    uint32_t              nmm;
    kvr_scratch_t         blocks;       /* kvr_tensorrt_block_t */

    kvr_scratch_t         lora;
    kvr_scratch_t         salt;
    size_t                lora_len;
    size_t                salt_len;

    kvr_tensorrt_block_t  block;        /* the one we are in */
    bool                  block_salted;
    bool                  mm_hashed;    /* the key we are in has a hash */

    kvr_why_t             wrong;        /* the first */
    const char           *detail;
};


extern const yajl_callbacks  kvr_tensorrt_callbacks;


/* Nothing is known of the event that is read next. */
void kvr_tensorrt_begin(kvr_decoder_t *d);

/* The first thing that is wrong with the event stays. */
static inline void
kvr_tensorrt_wrong(kvr_tensorrt_t *t, kvr_why_t why, const char *detail)
{
    if (t->wrong == KVR_WHY_NONE) {
        t->wrong = why;
        t->detail = detail;
    }
}


/* The same, with the block. */
static inline void
kvr_tensorrt_block_wrong(kvr_tensorrt_t *t, kvr_why_t why)
{
    if (t->block.why == KVR_WHY_NONE) {
        t->block.why = why;
    }
}


#endif /* KVR_TENSORRT_H_INCLUDED */
