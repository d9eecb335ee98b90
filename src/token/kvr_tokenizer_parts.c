/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What a tokenizer.json has beside the vocabulary: "normalizer",
 * "pre_tokenizer", "post_processor".
 */


#include "kvr_tokenizer_state.h"


/* of a "ByteLevel" pre-tokenizer: GPT-2's words */
#define KVR_TOKEN_WORDS                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"       \
    "|\\s+(?!\\S)|\\s+"

/* of a "Metaspace": U+2581 */
#define KVR_TOKEN_MARK       "\xe2\x96\x81"


static bool kvr_token_split(kvr_token_load_t *l, kvr_token_value_t v,
    kvr_splitter_op_t *op);
static bool kvr_token_bytes(kvr_token_load_t *l, kvr_token_value_t v);
static bool kvr_token_metaspace(kvr_token_load_t *l, kvr_token_value_t v,
    kvr_splitter_op_t *op);
static bool kvr_token_template(kvr_token_load_t *l, kvr_token_value_t v);


/* The parts of a "Sequence". */

static bool
kvr_token_each(kvr_token_load_t *l, kvr_token_value_t v, const char *name,
    bool (*part)(kvr_token_load_t *l, kvr_token_value_t v))
{
    kvr_json_t         j;
    kvr_token_value_t  element;

    if (!kvr_token_open(&j, kvr_token_get(v, name))) {
        return kvr_token_refuse(l, "a \"Sequence\" without \"%s\"", name);
    }

    while (kvr_token_next(&j, &element)) {
        if (!part(l, element)) {
            return false;
        }
    }

    return true;
}


/* The type of a part that is not known, for the sentence. */

static bool
kvr_token_unknown(kvr_token_load_t *l, const char *what, kvr_token_value_t v)
{
    bool               rc;
    kvr_bytes_t        name;
    kvr_token_value_t  type;

    memset(&name, 0, sizeof(kvr_bytes_t));
    type = kvr_token_get(v, "type");

    rc = kvr_token_text(type, &name)
         ? kvr_token_refuse(l, "the %s \"%.*s\" is not supported", what,
                            (int) kvr_min(name.n, 40), name.data)
         : kvr_token_refuse(l, "a %s without a type", what);

    kvr_bytes_free(&name);

    return rc;
}


static bool
kvr_token_compile(kvr_token_load_t *l, const char *text, size_t len,
    kvr_pattern_t **pattern)
{
    char  why[KVR_PATTERN_WHY];

    *pattern = kvr_pattern_compile(text, len, l->t->age, why);

    return *pattern || kvr_token_refuse(l, "%s", why);
}


/* { "Regex": … } or { "String": … } */

static bool
kvr_token_pattern(kvr_token_load_t *l, kvr_token_value_t v,
    kvr_pattern_t **pattern, kvr_bytes_t *literal)
{
    bool         good;
    kvr_bytes_t  text;

    memset(&text, 0, sizeof(kvr_bytes_t));

    if (kvr_token_text(kvr_token_get(v, "Regex"), &text)) {
        good = kvr_token_compile(l, text.data, text.n, pattern);
        kvr_bytes_free(&text);

        return good;
    }

    kvr_bytes_free(&text);

    if (!kvr_token_text(kvr_token_get(v, "String"), literal)
        || literal->n == 0)
    {
        return kvr_token_refuse(l, "a pattern that is neither a \"Regex\" nor "
                                "a \"String\"");
    }

    return true;
}


/* ---- normalizers -------------------------------------------------------- */

bool
kvr_token_normalizers(kvr_token_load_t *l, kvr_token_value_t v)
{
    uint32_t              i;
    kvr_normalizer_t     *n;
    kvr_token_value_t     type;
    kvr_normalizer_op_t  *op;

    static const char *const  forms[] = { "NFC", "NFD", "NFKC", "NFKD" };

    if (!kvr_token_given(v)) {
        return true;
    }

    n = &l->t->normalizer;
    type = kvr_token_get(v, "type");

    if (kvr_token_is(type, "Sequence")) {
        return kvr_token_each(l, v, "normalizers", kvr_token_normalizers);
    }

    if (n->n == KVR_NORMALIZER_OPS) {
        return kvr_token_refuse(l, "more than %u normalizers",
                                (unsigned) KVR_NORMALIZER_OPS);
    }

    op = &n->ops[n->n++];

    for (i = 0; i < 4; i++) {
        if (kvr_token_is(type, forms[i])) {
            op->kind = KVR_NORMALIZER_FORM;
            op->form = (kvr_unicode_form_t) i;
            return true;
        }
    }

    if (kvr_token_is(type, "Lowercase")) {
        op->kind = KVR_NORMALIZER_LOWER;
        return true;
    }

    if (kvr_token_is(type, "Strip")) {
        op->kind = KVR_NORMALIZER_STRIP;
        op->left = kvr_token_yes(kvr_token_get(v, "strip_left"), false);
        op->right = kvr_token_yes(kvr_token_get(v, "strip_right"), false);
        return true;
    }

    if (kvr_token_is(type, "Prepend")) {
        op->kind = KVR_NORMALIZER_PREPEND;

        return kvr_token_text(kvr_token_get(v, "prepend"), &op->to)
               || kvr_token_refuse(l, "a normalizer \"Prepend\" without a "
                                   "text");
    }

    if (kvr_token_is(type, "Replace")) {
        op->kind = KVR_NORMALIZER_REPLACE;

        if (!kvr_token_text(kvr_token_get(v, "content"), &op->to)) {
            return kvr_token_refuse(l, "a normalizer \"Replace\" without a "
                                    "content");
        }

        return kvr_token_pattern(l, kvr_token_get(v, "pattern"), &op->pattern,
                                 &op->from);
    }

    return kvr_token_unknown(l, "normalizer", v);
}


/* ---- pre-tokenizers ----------------------------------------------------- */

bool
kvr_token_splitters(kvr_token_load_t *l, kvr_token_value_t v)
{
    kvr_splitter_t     *s;
    kvr_splitter_op_t  *op;
    kvr_token_value_t   type;

    if (!kvr_token_given(v)) {
        return true;
    }

    s = &l->t->splitter;
    type = kvr_token_get(v, "type");

    if (kvr_token_is(type, "Sequence")) {
        return kvr_token_each(l, v, "pretokenizers", kvr_token_splitters);
    }

    if (l->t->vocabulary.byte_level) {
        return kvr_token_refuse(l, "a pre-tokenizer behind \"ByteLevel\"");
    }

    if (s->n + 2 > KVR_SPLITTER_OPS) {
        return kvr_token_refuse(l, "more than %u pre-tokenizers",
                                (unsigned) KVR_SPLITTER_OPS - 2);
    }

    op = &s->ops[s->n];

    if (kvr_token_is(type, "Split")) {
        s->n++;
        return kvr_token_split(l, v, op);
    }

    if (kvr_token_is(type, "ByteLevel")) {
        return kvr_token_bytes(l, v);
    }

    if (kvr_token_is(type, "Digits")) {
        s->n++;
        op->behaviour = kvr_token_yes(kvr_token_get(v, "individual_digits"),
                                      false)
                        ? KVR_SPLITTER_ISOLATED : KVR_SPLITTER_CONTIGUOUS;

        return kvr_token_compile(l, "\\p{N}", 5, &op->pattern);
    }

    if (kvr_token_is(type, "Metaspace")) {
        s->n++;
        return kvr_token_metaspace(l, v, op);
    }

    return kvr_token_unknown(l, "pre-tokenizer", v);
}


static bool
kvr_token_split(kvr_token_load_t *l, kvr_token_value_t v,
    kvr_splitter_op_t *op)
{
    uint32_t           i;
    kvr_token_value_t  behaviour;

    static const char *const  names[] = { "Isolated", "Removed", "Contiguous",
                                          "MergedWithPrevious",
                                          "MergedWithNext" };

    behaviour = kvr_token_get(v, "behavior");

    for (i = 0; i < 5 && !kvr_token_is(behaviour, names[i]); i++) {
        /* void */
    }

    if (i == 5) {
        return kvr_token_refuse(l, "a \"Split\" of an unknown behavior");
    }

    op->kind = KVR_SPLITTER_SPLIT;
    op->behaviour = (kvr_splitter_behaviour_t) i;
    op->invert = kvr_token_yes(kvr_token_get(v, "invert"), false);

    return kvr_token_pattern(l, kvr_token_get(v, "pattern"), &op->pattern,
                             &op->literal);
}


static bool
kvr_token_bytes(kvr_token_load_t *l, kvr_token_value_t v)
{
    kvr_splitter_t     *s;
    kvr_splitter_op_t  *op;

    s = &l->t->splitter;
    l->t->vocabulary.byte_level = true;

    if (kvr_token_yes(kvr_token_get(v, "add_prefix_space"), true)) {
        s->ops[s->n++].kind = KVR_SPLITTER_PREFIX;
    }

    if (!kvr_token_yes(kvr_token_get(v, "use_regex"), true)) {
        return true;
    }

    op = &s->ops[s->n++];
    op->kind = KVR_SPLITTER_SPLIT;
    op->behaviour = KVR_SPLITTER_ISOLATED;

    return kvr_token_compile(l, KVR_TOKEN_WORDS, sizeof(KVR_TOKEN_WORDS) - 1,
                             &op->pattern);
}


static bool
kvr_token_metaspace(kvr_token_load_t *l, kvr_token_value_t v,
    kvr_splitter_op_t *op)
{
    kvr_token_value_t  scheme;

    op->kind = KVR_SPLITTER_METASPACE;
    op->behaviour = KVR_SPLITTER_NEXT;
    op->joined = !kvr_token_yes(kvr_token_get(v, "split"), true);

    if (!kvr_token_text(kvr_token_get(v, "replacement"), &op->literal)) {
        kvr_bytes_add(&op->literal, KVR_TOKEN_MARK,
                      sizeof(KVR_TOKEN_MARK) - 1);
    }

    if (op->literal.n == 0) {
        return kvr_token_refuse(l, "a \"Metaspace\" with an empty "
                                "replacement");
    }

    scheme = kvr_token_get(v, "prepend_scheme");

    if (kvr_token_is(scheme, "never")) {
        op->scheme = KVR_SPLITTER_NEVER;

    } else if (kvr_token_is(scheme, "first")) {
        op->scheme = KVR_SPLITTER_FIRST;

    } else if (!kvr_token_given(scheme)
               && !kvr_token_yes(kvr_token_get(v, "add_prefix_space"), true))
    {
        op->scheme = KVR_SPLITTER_NEVER;

    } else {
        op->scheme = KVR_SPLITTER_ALWAYS;
    }

    return true;
}


/* ---- ids around a text -------------------------------------------------- */

/* A "ByteLevel" processor changes offsets, no ids. */

bool
kvr_token_frame(kvr_token_load_t *l, kvr_token_value_t v)
{
    kvr_token_value_t  type;

    if (!kvr_token_given(v)) {
        return true;
    }

    type = kvr_token_get(v, "type");

    if (kvr_token_is(type, "Sequence")) {
        return kvr_token_each(l, v, "processors", kvr_token_frame);
    }

    if (kvr_token_is(type, "ByteLevel")) {
        return true;
    }

    if (kvr_token_is(type, "TemplateProcessing")) {
        return kvr_token_template(l, v);
    }

    return kvr_token_unknown(l, "post-processor", v);
}


/*
 * "single" is a list of { "SpecialToken": { "id": name } } and one
 * { "Sequence": … }, the text.
 */

static bool
kvr_token_template(kvr_token_load_t *l, kvr_token_value_t v)
{
    char               name[256];
    bool               good;
    uint32_t           id, texts, *ids, *n;
    kvr_bytes_t        text;
    kvr_json_t         j, k;
    kvr_token_value_t  element, special;

    if (l->t->nbefore || l->t->nbehind) {
        return kvr_token_refuse(l, "two templates of a post-processor");
    }

    texts = 0;

    if (!kvr_token_open(&j, kvr_token_get(v, "single"))) {
        return kvr_token_refuse(l, "a template without \"single\"");
    }

    while (kvr_token_next(&j, &element)) {

        if (kvr_token_given(kvr_token_get(element, "Sequence"))) {
            texts++;
            continue;
        }

        memset(&text, 0, sizeof(kvr_bytes_t));

        good = kvr_token_text(kvr_token_get(kvr_token_get(element,
                                                          "SpecialToken"),
                                            "id"), &text)
               && text.n < sizeof(name)
               && memchr(text.data, 0, text.n) == NULL;

        if (good) {
            memcpy(name, text.data, text.n);
            name[text.n] = '\0';
        }

        kvr_bytes_free(&text);

        special = good ? kvr_token_get(kvr_token_get(v, "special_tokens"),
                                       name)
                       : (kvr_token_value_t) { NULL, 0 };

        if (!kvr_token_open(&k, kvr_token_get(special, "ids"))) {
            return kvr_token_refuse(l, "a template with a special token that "
                                    "has no ids");
        }

        while (kvr_token_next(&k, &element)) {
            ids = texts ? l->t->behind : l->t->before;
            n = texts ? &l->t->nbehind : &l->t->nbefore;

            if (!kvr_token_u32(element, &id) || *n == KVR_TOKENIZER_FRAME) {
                return kvr_token_refuse(l, "a template with more than %u ids, "
                                        "or with an id that is none",
                                        (unsigned) KVR_TOKENIZER_FRAME);
            }

            ids[(*n)++] = id;
        }
    }

    return texts == 1
           || kvr_token_refuse(l, "a template whose text is not there once");
}
