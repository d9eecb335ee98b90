/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_check.h"


const char *
kvr_index_check(const kvr_index_t *x)
{
    return x->zone->kind == KVR_INDEX_RADIX
           ? kvr_radix_check(&x->u.radix)
           : kvr_positional_check(&x->u.positional);
}
