/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_adapters.h"


const char *
kvr_adapters_set(char list[KVR_ADAPTERS_MAX + 1], const char *names,
    size_t len)
{
    char         copy[KVR_ADAPTERS_MAX + 1];
    const char  *p, *end, *comma, *wrong;

    memset(copy, 0, sizeof(copy));

    end = names + len;

    for (p = names; p < end; p = comma + 1) {

        comma = memchr(p, ',', (size_t) (end - p));

        if (comma == NULL) {
            comma = end;
        }

        wrong = kvr_adapters_add(copy, p, (size_t) (comma - p));

        if (wrong) {
            return wrong;
        }
    }

    memcpy(list, copy, sizeof(copy));

    return NULL;
}


const char *
kvr_adapters_add(char list[KVR_ADAPTERS_MAX + 1], const char *name,
    size_t len)
{
    size_t  i, has;

    for (i = 0; i < len; i++) {
        if (name[i] < 0x20 || name[i] > 0x7e || name[i] == ',') {
            return "has a character that no name of an adapter has";
        }
    }

    while (len && name[0] == ' ') {
        name++;
        len--;
    }

    while (len && name[len - 1] == ' ') {
        len--;
    }

    if (len == 0) {
        return NULL;
    }

    has = strlen(list);

    if (len > KVR_ADAPTERS_MAX || has + (has > 0) + len > KVR_ADAPTERS_MAX) {
        return "has more than 511 bytes";
    }

    if (has) {
        list[has++] = ',';
    }

    memcpy(list + has, name, len);
    list[has + len] = '\0';

    return NULL;
}


bool
kvr_adapters_next(const char **list, const char **name, size_t *len)
{
    const char  *p;

    p = *list;

    if (*p == '\0') {
        return false;
    }

    *name = p;
    *len = strcspn(p, ",");
    *list = p + *len + (p[*len] == ',');

    return true;
}
