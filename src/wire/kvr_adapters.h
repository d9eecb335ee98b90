/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Which adapters (LoRA) a worker has loaded: a terminated list of names that
 * single commas join, "" when that is not known.  Names are of printable ASCII
 * but the comma.
 */


#ifndef KVR_ADAPTERS_H_INCLUDED
#define KVR_ADAPTERS_H_INCLUDED


#include "../kvr.h"


#define KVR_ADAPTERS_MAX     511         /* bytes of a list: some 30 names */


/*
 * Makes a list of any bytes: names with commas, blanks around them and empty
 * ones left out.  NULL, or what is wrong, a word that lives forever, and the
 * list is as it was.
 */
const char *kvr_adapters_set(char list[KVR_ADAPTERS_MAX + 1],
    const char *names, size_t len);

/* The same of one more name, in which a comma is wrong. */
const char *kvr_adapters_add(char list[KVR_ADAPTERS_MAX + 1],
    const char *name, size_t len);

/* The next name of a list, which *list moves behind; false: there is none. */
bool kvr_adapters_next(const char **list, const char **name, size_t *len);


#endif /* KVR_ADAPTERS_H_INCLUDED */
