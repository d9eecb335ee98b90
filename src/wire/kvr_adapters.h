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
 * Makes a list of any bytes.  Names with commas, the blanks around a name, and
 * empty names are left out.  Returns NULL, or what is wrong: a static word;
 * the list is unchanged then.
 */
const char *kvr_adapters_set(char list[KVR_ADAPTERS_MAX + 1],
    const char *names, size_t len);

/*
 * Adds one name to a list, as kvr_adapters_set() does.  A comma in the name is
 * an error.
 */
const char *kvr_adapters_add(char list[KVR_ADAPTERS_MAX + 1],
    const char *name, size_t len);

/*
 * Finds the next name of a list, and moves *list behind the name.  False:
 * there are no more names.
 */
bool kvr_adapters_next(const char **list, const char **name, size_t *len);


#endif /* KVR_ADAPTERS_H_INCLUDED */
