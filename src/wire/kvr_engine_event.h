/*
 * Copyright (C) the nginx-kv-router authors
 *
 * An engine's event while it is read: the fields that were found, and what
 * is wrong with them.
 *
 * Each field has one reader, whether it was found by position or by name.  A
 * reader never gives up: it notes the first thing that is wrong and consumes
 * the value, so that the verdict is given on the whole event, filters first.
 */


#ifndef KVR_ENGINE_EVENT_H_INCLUDED
#define KVR_ENGINE_EVENT_H_INCLUDED


#include "kvr_decoder.h"


/*
 * The kinds of events whose fields are checked.  A clear needs its rank alone,
 * and a removal its blocks, too.
 */
#define KVR_ENGINE_KINDS  (KVR_CLEAR + 1)

#define KVR_OF(kind)   (1u << (kind))
#define KVR_OF_STORE   KVR_OF(KVR_STORE)
#define KVR_OF_BLOCKS  (KVR_OF(KVR_STORE) | KVR_OF(KVR_REMOVE))
#define KVR_OF_ALL     (KVR_OF_BLOCKS | KVR_OF(KVR_CLEAR))


typedef struct {
    kvr_event_t         *ev;

    bool                 said;          /* a type, one that is known or not */
    bool                 tagged;        /* one that is known */
    bool                 torn;          /* one, and another one too */
    bool                 has_handles;
    bool                 has_parent;    /* the field; nil is a parent too */
    bool                 has_tokens;
    bool                 has_block_size;
    bool                 has_lora_id;
    bool                 lora_numbered; /* lora_id is a number */
    bool                 has_extra_keys;
    bool                 off_root;      /* not at its chain's beginning */

    bool                 object_key;    /* a number, which names a block */
    bool                 object_part;   /* an object that may not be all
                                           of a block */
    bool                 foreign_medium;
    bool                 foreign_locality;
    bool                 foreign_tenant;
    bool                 unclassified;  /* a key that isn't indexed */

    uint64_t             block_size;
    uint64_t             lora_id;
    uint64_t             object_hash;   /* a whole block's */
    uint32_t             nremaining;
    kvr_msgpack_t        extra_keys;    /* the content of the item */
    kvr_msgpack_item_t   extra_keys_item;

    struct {
        kvr_why_t        why;           /* the first */
        const char      *detail;
    } wrong[KVR_ENGINE_KINDS];          /* should it be of that kind */
} kvr_engine_event_t;


/*
 * Readers: the item was read already, what it contains was not.  They return
 * KVR_OK, or KVR_INVALID for broken msgpack.
 */

typedef kvr_rc_t kvr_field_read_t(kvr_decoder_t *d, kvr_engine_event_t *e,
    const kvr_msgpack_item_t *item);

kvr_field_read_t  kvr_field_tag, kvr_field_handles, kvr_field_parent,
    kvr_field_tokens, kvr_field_block_size, kvr_field_lora_id,
    kvr_field_medium, kvr_field_seventh, kvr_field_lora_name,
    kvr_field_metadata, kvr_field_salt, kvr_field_extra_keys, kvr_field_group,
    kvr_field_group_kind, kvr_field_locality, kvr_field_remaining,
    kvr_field_origin, kvr_field_rank, kvr_field_base, kvr_field_event_id,
    kvr_field_object_key, kvr_field_object_group, kvr_field_tenant,
    kvr_field_mm_infos, kvr_field_skip;

/* Gives the event the block that its object_key names. */
void kvr_object_handle(kvr_decoder_t *d, kvr_engine_event_t *e);

void kvr_engine_wrong(kvr_engine_event_t *e, uint32_t kinds, kvr_why_t why,
    const char *detail);


#endif /* KVR_ENGINE_EVENT_H_INCLUDED */
