/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What an encoder is made of, for the files that are one.
 *
 *     CHECK ─► FIND ─► NORMALIZE ─► SECTION ─► REPAIR ─► SPLIT ◄─► MERGE
 *               ▲  └──────┐            ▲                   │
 *               │         ▼            └──── more parts ───┤
 *               └────── TOKEN ◄────────── section's end ───┘
 *                         └─► END
 *
 * FIND looks for the next added token in the raw text, SECTION for the next
 * one in the normalized text before that.  Each state does a bounded part of
 * its work, and says which state is next.
 */


#ifndef KVR_ENCODER_STATE_H_INCLUDED
#define KVR_ENCODER_STATE_H_INCLUDED


#include "kvr_encoder.h"
#include "kvr_merge.h"
#include "kvr_tokenizer_state.h"


#define KVR_ENCODER_PART     (32 << 10) /* bytes that are looked at between two
                                           looks at the clock */
#define KVR_ENCODER_PIECES   16         /* pieces, the same */
#define KVR_ENCODER_MERGES   512        /* merges of a long piece, the same */
#define KVR_ENCODER_PIECE    (256 << 10)


typedef enum {
    KVR_ENCODER_CHECK,
    KVR_ENCODER_FIND,
    KVR_ENCODER_NORMALIZE,
    KVR_ENCODER_SECTION,
    KVR_ENCODER_REPAIR,
    KVR_ENCODER_SPLIT,
    KVR_ENCODER_MERGE,
    KVR_ENCODER_TOKEN,
    KVR_ENCODER_END,
    KVR_ENCODER_NOTHING
} kvr_encoder_state_t;


struct kvr_encoder_s {
    const kvr_tokenizer_t  *t;
    kvr_pieces_t           *pieces;
    kvr_encoder_limits_t    limits;

    const char             *text;
    size_t                  len;
    uint32_t                flags;
    kvr_encoder_state_t     state;
    kvr_encoder_rc_t        rc;

    /* the raw text */
    size_t                  checked;
    size_t                  at;         /* before it all is encoded */
    size_t                  from;       /* no token begins before it */
    int32_t                 token;      /* the next one; -1: none */
    size_t                  a;
    size_t                  b;

    /* the section before that token, normalized */
    const char             *section;
    size_t                  section_len;
    size_t                  raw_at;     /* normalized up to here */
    size_t                  section_at;
    size_t                  section_from;
    int32_t                 inner;      /* the next token of it; -1: none */
    size_t                  inner_b;
    bool                    copied;     /* the section is in `normalized` */
    kvr_bytes_t             normalized;

    /* the part of the section before the inner token */
    const char             *part;
    const char             *part_repaired;
    size_t                  part_len;
    size_t                  repair_at;
    bool                    part_taken;
    kvr_bytes_t             repaired;

    /* the piece, and what is left of it behind a division */
    const char             *rest;
    const char             *rest_end;
    const char             *piece;
    size_t                  piece_len;
    uint64_t                piece_hash;

    kvr_split_t             split;
    kvr_normalizer_work_t   work;
    kvr_matcher_t          *matcher;
    kvr_merge_state_t      *merge;

    kvr_bytes_t             ids;        /* uint32_t */
    kvr_bytes_t             cuts;       /* kvr_encoder_cut_t */
    size_t                  framed;     /* ids that the text begins with */
};


/* The steps of states; each sets the state. */
void kvr_encoder_normalize(kvr_encoder_t *e);
void kvr_encoder_section(kvr_encoder_t *e);
void kvr_encoder_repair(kvr_encoder_t *e);
void kvr_encoder_split(kvr_encoder_t *e);
void kvr_encoder_merge(kvr_encoder_t *e);

/* Ends the encoding. */
static inline void
kvr_encoder_fail(kvr_encoder_t *e, kvr_encoder_rc_t rc)
{
    e->rc = rc;
    e->state = KVR_ENCODER_NOTHING;
}


#endif /* KVR_ENCODER_STATE_H_INCLUDED */
