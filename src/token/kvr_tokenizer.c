/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_tokenizer_state.h"

#include "../wire/kvr_utf8.h"

#include <stdio.h>


#define KVR_TOKEN_SPARSE     65536      /* ids more than twice the tokens */


/* The members of "model". */
enum {
    KVR_TOKEN_TYPE,
    KVR_TOKEN_DROPOUT,
    KVR_TOKEN_PREFIX,
    KVR_TOKEN_SUFFIX,
    KVR_TOKEN_FALLBACK,
    KVR_TOKEN_FUSE,
    KVR_TOKEN_IGNORE,
    KVR_TOKEN_UNKNOWN,
    KVR_TOKEN_VOCAB,
    KVR_TOKEN_MERGES,
    KVR_TOKEN_PARTS
};

static const char *const  kvr_token_parts[KVR_TOKEN_PARTS] = {
    "type", "dropout", "continuing_subword_prefix", "end_of_word_suffix",
    "byte_fallback", "fuse_unk", "ignore_merges", "unk_token", "vocab",
    "merges"
};


static bool kvr_token_load(kvr_token_load_t *l);
static bool kvr_token_model(kvr_token_load_t *l, kvr_token_value_t model,
    kvr_token_value_t added);
static bool kvr_token_unknown_id(kvr_token_load_t *l, kvr_token_value_t v,
    const kvr_token_names_t *names);
static bool kvr_token_names(kvr_token_load_t *l, kvr_token_value_t vocab,
    kvr_token_names_t *names);
static bool kvr_token_name(kvr_token_load_t *l, kvr_token_names_t *names,
    const kvr_json_text_t *key, uint32_t id);
static bool kvr_token_hash(kvr_token_load_t *l, kvr_token_names_t *names);
static bool kvr_token_put_all(kvr_token_load_t *l,
    const kvr_token_names_t *names, uint32_t merges);
static bool kvr_token_merges(kvr_token_load_t *l, kvr_token_value_t merges,
    const kvr_token_names_t *names);
static bool kvr_token_merge(kvr_token_load_t *l,
    const kvr_token_names_t *names, kvr_bytes_t *both, size_t split,
    uint32_t rank);


kvr_tokenizer_t *
kvr_tokenizer_load(const char *json, size_t len, kvr_unicode_age_t age,
    char *why, size_t why_len)
{
    kvr_json_t        j;
    kvr_token_load_t  l;

    memset(&l, 0, sizeof(kvr_token_load_t));
    l.why = why;
    l.why_len = why_len;

    if (len > INT32_MAX || kvr_utf8_valid(json, len) != len) {
        (void) kvr_token_refuse(&l, "it is not well-formed UTF-8, or over 2 "
                                "GiB");
        return NULL;
    }

    kvr_json_init(&j, json, len);
    (void) kvr_json_skip(&j);

    if (!kvr_json_end(&j)) {
        (void) kvr_token_refuse(&l, "it is no JSON: %s at byte %zu", j.error,
                                j.error_at);
        return NULL;
    }

    l.root.data = json + strspn(json, " \t\r\n");
    l.root.len = len - (l.root.data - json);

    l.t = calloc(1, sizeof(kvr_tokenizer_t));

    if (l.t == NULL || !kvr_unicode_init()) {
        (void) kvr_token_refuse(&l, "no memory, or the Unicode of libutf8proc "
                                "is newer than 17");
        free(l.t);
        return NULL;
    }

    l.t->age = age;
    l.t->normalizer.age = age;

    if (!kvr_token_load(&l)) {
        kvr_tokenizer_free(l.t);
        return NULL;
    }

    return l.t;
}


void
kvr_tokenizer_free(kvr_tokenizer_t *t)
{
    uint32_t  i;

    if (t == NULL) {
        return;
    }

    for (i = 0; i < t->nadded; i++) {
        free(t->added[i].text);
    }

    free(t->added);
    kvr_added_free(&t->raw);
    kvr_added_free(&t->normalized);
    kvr_normalizer_free(&t->normalizer);
    kvr_splitter_free(&t->splitter);
    kvr_vocabulary_free(&t->vocabulary);
    free(t);
}


size_t
kvr_tokenizer_bytes(const kvr_tokenizer_t *t)
{
    size_t    n;
    uint32_t  i;

    n = sizeof(kvr_tokenizer_t) + kvr_vocabulary_bytes(&t->vocabulary);

    for (i = 0; i < t->nadded; i++) {
        n += sizeof(kvr_added_t) + t->added[i].len;
    }

    n += (t->raw.nnodes + t->normalized.nnodes) * sizeof(kvr_added_node_t)
         + (t->raw.nedges + t->normalized.nedges) * sizeof(kvr_added_edge_t);

    for (i = 0; i < t->splitter.n; i++) {
        if (t->splitter.ops[i].pattern) {
            n += kvr_pattern_bytes(t->splitter.ops[i].pattern);
        }
    }

    return n;
}


static bool
kvr_token_load(kvr_token_load_t *l)
{
    kvr_token_value_t  parts[5];

    static const char *const  names[] = { "model", "normalizer",
                                          "pre_tokenizer", "post_processor",
                                          "added_tokens" };

    if (*l->root.data != '{') {
        return kvr_token_refuse(l, "it is no JSON object");
    }

    kvr_token_members(l->root, names, parts, 5);

    if (!kvr_token_given(parts[0])) {
        return kvr_token_refuse(l, "it has no \"model\"");
    }

    /* the flags that the vocabulary depends on come first */

    return kvr_token_normalizers(l, parts[1])
           && kvr_token_splitters(l, parts[2])
           && kvr_token_frame(l, parts[3])
           && kvr_token_model(l, parts[0], parts[4]);
}


/* Refuses a model of which these functions would make other ids. */

static bool
kvr_token_refused(kvr_token_load_t *l, const kvr_token_value_t *m)
{
    uint32_t           i;
    kvr_token_value_t  type;

    type = m[KVR_TOKEN_TYPE];

    if (kvr_token_given(type) ? !kvr_token_is(type, "BPE")
                              : m[KVR_TOKEN_MERGES].data == NULL)
    {
        return !kvr_token_refuse(l, "its model is %.*s, only \"BPE\" is "
                                 "supported", (int) kvr_min(type.len, 20),
                                 type.data ? type.data : "not named");
    }

    if (kvr_token_given(m[KVR_TOKEN_DROPOUT])
        && strspn(m[KVR_TOKEN_DROPOUT].data, "0.")
           < m[KVR_TOKEN_DROPOUT].len)
    {
        return !kvr_token_refuse(l, "it has a dropout: its ids are random");
    }

    for (i = KVR_TOKEN_PREFIX; i <= KVR_TOKEN_SUFFIX; i++) {
        if (kvr_token_given(m[i]) && !kvr_token_is(m[i], "")) {
            return !kvr_token_refuse(l, "its model has a \"%s\"",
                                     kvr_token_parts[i]);
        }
    }

    return false;
}


static bool
kvr_token_model(kvr_token_load_t *l, kvr_token_value_t model,
    kvr_token_value_t added)
{
    bool               good;
    uint32_t           merges;
    kvr_json_t         j;
    kvr_vocabulary_t  *v;
    kvr_token_names_t  names;
    kvr_token_value_t  element, m[KVR_TOKEN_PARTS];

    kvr_token_members(model, kvr_token_parts, m, KVR_TOKEN_PARTS);

    if (kvr_token_refused(l, m)) {
        return false;
    }

    v = &l->t->vocabulary;
    v->byte_fallback = kvr_token_yes(m[KVR_TOKEN_FALLBACK], false);
    v->fuse_unknown = kvr_token_yes(m[KVR_TOKEN_FUSE], false);
    v->ignore_merges = kvr_token_yes(m[KVR_TOKEN_IGNORE], false);

    if (v->byte_level && v->byte_fallback) {
        return kvr_token_refuse(l, "\"ByteLevel\" and \"byte_fallback\"");
    }

    merges = 0;

    if (kvr_token_open(&j, m[KVR_TOKEN_MERGES])) {
        while (kvr_token_next(&j, &element)) {
            merges++;
        }
    }

    memset(&names, 0, sizeof(kvr_token_names_t));

    good = kvr_token_names(l, m[KVR_TOKEN_VOCAB], &names)
           && kvr_token_put_all(l, &names, merges)
           && kvr_token_unknown_id(l, m[KVR_TOKEN_UNKNOWN], &names)
           && kvr_token_merges(l, m[KVR_TOKEN_MERGES], &names);

    if (good && !kvr_vocabulary_finish(v)) {
        good = kvr_token_no_memory(l);
    }

    /* when an unknown character vanishes, its neighbours may merge */

    l->t->divides = !v->byte_level
                    && (v->byte_fallback
                        || (v->unknown != KVR_TOKEN_NONE && !v->fuse_unknown));

    good = good && kvr_token_added(l, added, &names);

    kvr_bytes_free(&names.text);
    free(names.names);
    free(names.slots);

    return good;
}


static bool
kvr_token_unknown_id(kvr_token_load_t *l, kvr_token_value_t v,
    const kvr_token_names_t *names)
{
    kvr_bytes_t  text;

    if (!kvr_token_given(v)) {
        return true;
    }

    memset(&text, 0, sizeof(kvr_bytes_t));

    if (kvr_token_text(v, &text)) {
        l->t->vocabulary.unknown = kvr_token_id(names, text.data, text.n);
    }

    kvr_bytes_free(&text);

    return l->t->vocabulary.unknown != KVR_TOKEN_NONE
           || kvr_token_refuse(l, "its \"unk_token\" is not in the "
                               "vocabulary");
}


/* ---- the vocabulary ----------------------------------------------------- */

static bool
kvr_token_names(kvr_token_load_t *l, kvr_token_value_t vocab,
    kvr_token_names_t *names)
{
    uint64_t         id;
    kvr_json_t       j;
    kvr_json_text_t  key;

    if (vocab.data == NULL || *vocab.data != '{') {
        return kvr_token_refuse(l, "its model has no \"vocab\"");
    }

    kvr_json_init(&j, vocab.data, vocab.len);

    if (kvr_json_open(&j, '{')) {
        while (kvr_json_key(&j, &key)) {

            if (!kvr_json_u64(&j, &id) || id >= INT32_MAX) {
                return kvr_token_refuse(l, "the token \"%.*s\" of the "
                                        "vocabulary has no id",
                                        (int) kvr_min(key.len, 40), key.data);
            }

            if (!kvr_token_name(l, names, &key, (uint32_t) id)) {
                return false;
            }
        }
    }

    if (names->n == 0) {
        return kvr_token_refuse(l, "its vocabulary is empty");
    }

    if (names->largest > 2 * names->n + KVR_TOKEN_SPARSE) {
        return kvr_token_refuse(l, "its largest id, %u, is far beyond its %u "
                                "tokens", names->largest, names->n);
    }

    return kvr_token_hash(l, names);
}


static bool
kvr_token_name(kvr_token_load_t *l, kvr_token_names_t *names,
    const kvr_json_text_t *key, uint32_t id)
{
    kvr_token_name_t  *name;

    if (names->n == names->cap) {
        names->cap = 2 * names->cap + 4096;

        name = realloc(names->names, names->cap * sizeof(kvr_token_name_t));
        if (name == NULL) {
            return kvr_token_no_memory(l);
        }

        names->names = name;
    }

    if (!kvr_bytes_room(&names->text, key->len + 1)) {
        return kvr_token_no_memory(l);
    }

    name = &names->names[names->n++];
    name->at = (uint32_t) names->text.n;
    name->len = (uint32_t) kvr_json_decode(key, names->text.data
                                                + names->text.n, key->len);
    name->id = id;

    names->text.n += name->len;
    names->largest = kvr_max(names->largest, id);

    return true;
}


static bool
kvr_token_hash(kvr_token_load_t *l, kvr_token_names_t *names)
{
    uint32_t           i, k;
    const char        *text;
    kvr_token_name_t  *name;

    for (names->mask = 16; names->mask < 2 * names->n; names->mask *= 2) {
        /* void */
    }

    names->slots = calloc(names->mask, sizeof(uint32_t));
    if (names->slots == NULL) {
        return kvr_token_no_memory(l);
    }

    names->mask--;

    for (i = 0; i < names->n; i++) {

        name = &names->names[i];
        text = names->text.data + name->at;

        if (kvr_token_id(names, text, name->len) != KVR_TOKEN_NONE) {
            return kvr_token_refuse(l, "the token \"%.*s\" is in the "
                                    "vocabulary twice",
                                    (int) kvr_min(name->len, 40), text);
        }

        for (k = XXH3_64bits(text, name->len) & names->mask;
             names->slots[k];
             k = (k + 1) & names->mask)
        {
            /* void */
        }

        names->slots[k] = i + 1;
    }

    return true;
}


/*
 * A byte-level vocabulary spells bytes by printable characters: those of
 * Latin 1 that are printable stand for themselves, the others follow from
 * U+0100 on.  A token with another character is in no text.
 */

static bool
kvr_token_put_all(kvr_token_load_t *l, const kvr_token_names_t *names,
    uint32_t merges)
{
    char               byte, text[8];
    int16_t            bytes[0x200];
    uint32_t           i, c, k, n, id, more;
    const char        *p;
    kvr_bytes_t        out;
    kvr_vocabulary_t  *v;

    v = &l->t->vocabulary;

    if (!kvr_vocabulary_init(v, names->n, names->largest + 1, merges)) {
        return kvr_token_no_memory(l);
    }

    memset(bytes, 0xff, sizeof(bytes));

    for (i = 0, more = 0x100; i < 256; i++) {
        bytes[(i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174
              ? i : more++] = (int16_t) i;
    }

    memset(&out, 0, sizeof(kvr_bytes_t));

    for (i = 0; i < names->n; i++) {

        p = names->text.data + names->names[i].at;
        out.n = 0;

        if (!v->byte_level) {
            kvr_bytes_add(&out, p, names->names[i].len);
        }

        for (k = 0; v->byte_level && k < names->names[i].len; k += n) {
            c = kvr_unicode_get(p + k, &n);

            if (c >= 0x200 || bytes[c] < 0) {
                break;
            }

            text[0] = (char) bytes[c];
            kvr_bytes_add(&out, text, 1);
        }

        if (v->byte_level && k < names->names[i].len) {
            continue;
        }

        if (out.failed
            || !kvr_vocabulary_put(v, names->names[i].id,
                                   out.data ? out.data : "", out.n))
        {
            kvr_bytes_free(&out);
            return kvr_token_no_memory(l);
        }
    }

    kvr_bytes_free(&out);

    for (i = 0; v->byte_fallback && i < 256; i++) {

        n = (uint32_t) snprintf(text, sizeof(text), "<0x%02X>", i);
        id = kvr_token_id(names, text, n);

        v->byte_ids[i] = id;

        /* a byte that is a character of the vocabulary needs no token */

        if (id == KVR_TOKEN_NONE) {
            byte = (char) i;

            if (i >= 0x80 || kvr_token_id(names, &byte, 1) == KVR_TOKEN_NONE) {
                return kvr_token_refuse(l, "it has \"byte_fallback\", and "
                                        "\"%s\" is not in the vocabulary",
                                        text);
            }
        }
    }

    return true;
}


/* ---- merges ------------------------------------------------------------- */

/* "a b", or ["a", "b"] */

static bool
kvr_token_two(kvr_token_value_t pair, kvr_bytes_t *both, size_t *split)
{
    size_t             n;
    kvr_json_t         j;
    const char        *blank;
    kvr_token_value_t  a, b, more;

    both->n = 0;

    if (kvr_token_open(&j, pair)) {

        if (!kvr_token_next(&j, &a) || !kvr_token_next(&j, &b)
            || kvr_token_next(&j, &more) || !kvr_token_text(a, both))
        {
            return false;
        }

        *split = both->n;

        return kvr_token_text(b, both);
    }

    if (!kvr_token_text(pair, both)) {
        return false;
    }

    blank = memchr(both->data, ' ', both->n);

    if (blank == NULL) {
        return false;
    }

    *split = blank - both->data;
    n = both->n - *split - 1;

    if (memchr(blank + 1, ' ', n)) {
        return false;
    }

    memmove(both->data + *split, blank + 1, n);
    both->n--;

    return true;
}


static bool
kvr_token_merges(kvr_token_load_t *l, kvr_token_value_t merges,
    const kvr_token_names_t *names)
{
    int                form;
    bool               good;
    size_t             split;
    uint32_t           rank;
    kvr_json_t         j;
    kvr_bytes_t        both;
    kvr_token_value_t  pair;

    if (!kvr_token_open(&j, merges)) {
        return kvr_token_refuse(l, "its model has no \"merges\"");
    }

    memset(&both, 0, sizeof(kvr_bytes_t));
    good = true;
    form = 0;

    for (rank = 0; good && kvr_token_next(&j, &pair); rank++) {

        if (rank == 0) {
            form = *pair.data;
        }

        if (*pair.data != form || !kvr_token_two(pair, &both, &split)) {
            good = kvr_token_refuse(l, "merge %u is not two tokens, or of "
                                    "another form than the first merge", rank);
            break;
        }

        good = kvr_token_merge(l, names, &both, split, rank);
    }

    kvr_bytes_free(&both);

    return good;
}


static bool
kvr_token_merge(kvr_token_load_t *l, const kvr_token_names_t *names,
    kvr_bytes_t *both, size_t split, uint32_t rank)
{
    uint32_t           i, a, b, to;
    kvr_vocabulary_t  *v;

    v = &l->t->vocabulary;

    a = kvr_token_id(names, both->data, split);
    b = kvr_token_id(names, both->data + split, both->n - split);
    to = kvr_token_id(names, both->data, both->n);

    if (a == KVR_TOKEN_NONE || b == KVR_TOKEN_NONE || to == KVR_TOKEN_NONE) {
        return kvr_token_refuse(l, "merge %u joins, or makes, a token that is "
                                "not in the vocabulary", rank);
    }

    for (i = 0; v->byte_fallback && i < 256; i++) {
        if (v->byte_ids[i] == a || v->byte_ids[i] == b) {
            return kvr_token_refuse(l, "merge %u joins bytes of "
                                    "\"byte_fallback\"", rank);
        }
    }

    kvr_vocabulary_put_merge(v, a, b, to, rank, both->data, both->n);

    return true;
}
