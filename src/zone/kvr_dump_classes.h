/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The dump of a worker's classes of KV cache groups (radix/kvr_classes.h), for
 * kvr_dump.c.
 */


#ifndef KVR_DUMP_CLASSES_H_INCLUDED
#define KVR_DUMP_CLASSES_H_INCLUDED


#include "kvr_shard.h"


/*
 * Calls put() with events, as kvr_router_dump_events() does.  KVR_CLASS: they
 * describe the classes of each of the worker's holders.  KVR_BITS: they tell
 * which blocks the classes hold, of those that the holder has in device: when
 * the holder stores another block again, its publisher tells.  The caller has
 * the shard's lock, and the log is empty.
 */
kvr_rc_t kvr_dump_classes(kvr_shard_t *k, uint32_t worker,
    kvr_event_kind_t kind,
    kvr_rc_t (*put)(void *data, const kvr_event_t *ev), void *data);


#endif /* KVR_DUMP_CLASSES_H_INCLUDED */
