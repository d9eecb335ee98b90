/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Added tokens: texts such as <|im_end|> that become one id wherever they
 * stand.  Among those that begin first in a text the longest one is found.
 *
 * Read-only when it is built.
 */


#ifndef KVR_ADDED_H_INCLUDED
#define KVR_ADDED_H_INCLUDED


#include "kvr_pattern.h"


typedef struct {
    char      *text;
    uint32_t   len;
    uint32_t   id;
    bool       special;
    bool       normalized;      /* looked for in normalized text */
    bool       lstrip;          /* takes the white space before it */
    bool       rstrip;          /* and behind it */
    bool       single_word;     /* not next to a word's characters */
} kvr_added_t;


typedef struct {
    uint32_t   edges;           /* index of the first edge */
    uint32_t   nedges;          /* in the order of their bytes */
    int32_t    token;           /* the token that ends here; -1: none */
} kvr_added_node_t;


typedef struct {
    uint8_t    byte;
    uint32_t   to;
} kvr_added_edge_t;


/* A trie of one kind of added tokens: in raw, or in normalized text. */
typedef struct {
    kvr_added_node_t  *nodes;
    kvr_added_edge_t  *edges;
    uint32_t           nnodes;
    uint32_t           nedges;
    const kvr_added_t *twin;    /* a token with the text of another one, or
                                   NULL */
    uint32_t           nfirst;  /* bytes that a token begins with */
    uint8_t            only;    /* if it is one: this one */
    uint8_t            first[256];
    uint8_t            two[65536 / 8];  /* bits of the first two bytes */
} kvr_added_trie_t;


/*
 * Builds the trie of those tokens whose `normalized` is the same; false: no
 * memory.  The trie refers to them by their index.
 */
bool kvr_added_build(kvr_added_trie_t *t, const kvr_added_t *tokens,
    uint32_t n, bool normalized);
void kvr_added_free(kvr_added_trie_t *t);

/*
 * Looks for a token that begins in text[from..upto).  Returns its index, and
 * [*a, *b) is where it is; -1: there is none.
 */
int32_t kvr_added_find(const kvr_added_trie_t *t, const char *text, size_t len,
    size_t from, size_t upto, size_t *a, size_t *b);

/*
 * Applies the flags of a token that was found at [*a, *b) in a text of which
 * all before `start` is taken.  False: it does not count.
 */
bool kvr_added_accept(const kvr_added_t *token, kvr_matcher_t *m,
    kvr_unicode_age_t age, const char *text, size_t len, size_t start,
    size_t *a, size_t *b);


#endif /* KVR_ADDED_H_INCLUDED */
