/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The answer of a lookup, which is the same for both indexes.
 */


#ifndef KVR_DEPTHS_H_INCLUDED
#define KVR_DEPTHS_H_INCLUDED


#include "../kvr.h"
#include "kvr_hit.h"


#define KVR_LIMIT_NONE       UINT32_MAX


/*
 * Filled by find: depths[t][v] for views v < nviews, t = 0 device, 1 host,
 * 2 disk, cumulative.  When tiered is false, rows 0 and 1 were not written,
 * and are the same as row 2.
 *
 * A view with classes of KV-cache groups gets its hit (kvr_hit.h) in all
 * three.
 */
typedef struct {
    uint32_t   *depths[3];
    uint32_t    nviews;
    bool        early_exit;             /* set by the caller: may stop when one
                                           view is left, with less than the
                                           view has */

    /* set by the caller, for the views with classes */
    uint32_t    limit;                  /* as of kvr_hit(); KVR_LIMIT_NONE: the
                                           classes are not asked */
    void      (*rule)(void *data, uint32_t view, kvr_hit_rule_t *out);
    void       *data;                   /* rule(): that of the view's engine */

    bool        tiered;
    bool        torn;                   /* cut short beside a writer */
    bool        cut;                    /* ended at the maximum number of
                                           runs, or blocks, looked at: views
                                           may have more */
    uint32_t    looks;                  /* taken by the radix index, see
                                           KVR_RADIX_LOOKS */
} kvr_depths_t;


#endif /* KVR_DEPTHS_H_INCLUDED */
