/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Random streams of an engine's events against a model that knows the engine
 * itself: what copies it has of which block in which tier.  The index, and
 * what hears of it by what was emitted, answer as the model does.
 */


#include "engine.h"


#define HANDLES   48                    /* 1 .. HANDLES */
#define LETTERS   3
#define DEPTH     10                    /* of a chain, at most */
#define ROUNDS    1200
#define PROMPTS   12                    /* asked after each few events */


/* A block as the engine knows it. */
typedef struct {
    char      place[DEPTH + 1];         /* letters from the root; "": none */
    uint32_t  parent;                   /* handle; 0: the root */
    uint32_t  copies[KVR_TIERS];
    bool      foreign;
} model_block_t;


static model_block_t  model[HANDLES + 1];
static uint64_t       state;
static uint64_t       refused;


static uint32_t
any(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;

    return (uint32_t) ((state >> 32) * n >> 32);
}


static bool
model_held(uint32_t handle)
{
    uint32_t  t, n;

    for (t = 0, n = 0; t < KVR_TIERS; t++) {
        n += model[handle].copies[t];
    }

    return n != 0;
}


/* Through the chain of the handle's parents, are there places all along? */
static bool
model_known(uint32_t handle)
{
    uint32_t  i;

    for (i = 0; handle && i <= HANDLES; i++) {
        if (model[handle].place[0] == '\0') {
            return false;
        }

        if (model_held(handle)) {
            return true;
        }

        handle = model[handle].parent;
    }

    return handle == 0;
}


/*
 * The place that a block comes back to: by its ancestors, up to one that is
 * held, for some of them may have moved since.
 */
static void
model_place(uint32_t handle, char *out)
{
    size_t         n;
    char           own;
    model_block_t  *b;

    b = &model[handle];

    if (handle == 0) {
        out[0] = '\0';
        return;
    }

    if (model_held(handle)) {
        strcpy(out, b->place);
        return;
    }

    own = b->place[strlen(b->place) - 1];
    model_place(b->parent, out);

    n = strlen(out);

    out[n] = own;
    out[n + 1] = '\0';
}


static bool
model_fits(uint32_t handle, uint32_t more)
{
    char  place[HANDLES + DEPTH + 2];

    model_place(handle, place);

    return strlen(place) + more <= DEPTH;
}


static void
model_hold(uint32_t handle, uint32_t parent, const char *place,
    kvr_tier_t tier, bool reused)
{
    model_block_t  *b;

    b = &model[handle];

    if (strcmp(b->place, place) != 0) {
        memset(b->copies, 0, sizeof(b->copies));
        strcpy(b->place, place);
    }

    if (b->copies[tier] == 0) {
        b->parent = parent;
    }

    if (b->copies[tier] == 0 || !reused) {
        b->copies[tier]++;
    }
}


/* ---- events ------------------------------------------------------------- */

static void
random_store(void)
{
    char         letters[DEPTH + 1], place[HANDLES + DEPTH + 2];
    bool         reused;
    uint32_t     i, k, n, parent, tokens[DEPTH * ENGINE_SIZE_MAX];
    uint64_t     handles[DEPTH];
    kvr_tier_t   tier;
    kvr_event_t  ev;

    parent = any(3) ? 1 + any(HANDLES) : 0;
    tier = any(3) ? KVR_DEVICE : (kvr_tier_t) any(KVR_TIERS);
    n = 1 + any(3);
    reused = any(8) == 0;

    for (i = 0; i < n; i++) {
        letters[i] = (char) ('a' + any(LETTERS));

        do {
            handles[i] = 1 + any(HANDLES);

            for (k = 0; k < i && handles[k] != handles[i]; k++) {
                /* void */
            }

        } while (k < i || handles[i] == parent);
    }

    letters[n] = '\0';

    if (parent && model_known(parent) && !model_fits(parent, n)) {
        return;
    }

    engine_tokens(letters, n, tokens);

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_STORE;
    ev.tier = tier;
    ev.has_parent = parent != 0;
    ev.parent = parent;
    ev.handles = handles;
    ev.nhandles = n;
    ev.tokens = tokens;
    ev.ntokens = n * engine_size;
    ev.block_size = engine_size;
    ev.reused = reused;

    if (any(12) == 0) {
        ev.verdict = KVR_FILTERED;
        ev.why = KVR_WHY_MEDIUM;

        for (i = 0; i < n; i++) {
            model[handles[i]].foreign = true;
        }
    }

    (void) engine_tell(&ev);

    if (ev.verdict == KVR_FILTERED) {
        return;
    }

    if (parent && !model_known(parent)) {

        if (model[parent].foreign) {
            for (i = 0; i < n; i++) {
                model[handles[i]].foreign = true;
            }
        } else {
            refused += engine_rc == KVR_INVALID;
        }

        return;
    }

    model_place(parent, place);

    for (i = 0; i < n; i++) {
        k = (uint32_t) strlen(place);
        place[k] = letters[i];
        place[k + 1] = '\0';

        model_hold((uint32_t) handles[i], parent, place, tier, reused);
        parent = (uint32_t) handles[i];
    }
}


static void
random_offload(void)
{
    char         place[HANDLES + DEPTH + 2];
    uint32_t     h;
    uint64_t     handle;
    kvr_tier_t   tier;
    kvr_event_t  ev;

    h = 1 + any(HANDLES);
    handle = h;
    tier = (kvr_tier_t) any(KVR_TIERS);

    if (model_known(h) && !model_fits(h, 0)) {
        return;
    }

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_STORE;
    ev.tier = tier;
    ev.handles = &handle;
    ev.nhandles = 1;

    (void) engine_tell(&ev);

    if (model_known(h)) {
        model_place(h, place);
        strcpy(model[h].place, place);
        model[h].copies[tier]++;
    }
}


static void
random_remove(void)
{
    uint32_t     i, n;
    uint64_t     handles[8];
    kvr_tier_t   tier;
    kvr_event_t  ev;

    n = 1 + any(8);
    tier = any(2) ? KVR_DEVICE : (kvr_tier_t) any(KVR_TIERS);

    for (i = 0; i < n; i++) {
        handles[i] = 1 + any(HANDLES);

        if (model[handles[i]].copies[tier]) {
            model[handles[i]].copies[tier]--;
        }
    }

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_REMOVE;
    ev.tier = tier;
    ev.handles = handles;
    ev.nhandles = n;

    (void) engine_tell(&ev);
}


/* ---- what is held ------------------------------------------------------- */

static uint32_t
model_depth(const char *prompt, uint32_t tiers)
{
    uint32_t  d, h, t;

    for (d = 1; d <= strlen(prompt); d++) {

        for (h = 1; h <= HANDLES; h++) {

            if (strlen(model[h].place) != d
                || strncmp(model[h].place, prompt, d) != 0)
            {
                continue;
            }

            for (t = 0; t < tiers && model[h].copies[t] == 0; t++) {
                /* void */
            }

            if (t < tiers) {
                break;
            }
        }

        if (h > HANDLES) {
            break;
        }
    }

    return d - 1;
}


static bool
agrees(void)
{
    char      prompt[DEPTH + 1];
    uint32_t  i, k, h, n;

    for (i = 0; i < PROMPTS; i++) {

        h = 1 + any(HANDLES);
        n = (uint32_t) strlen(model[h].place);
        memcpy(prompt, model[h].place, n);

        for (k = n; k < DEPTH; k++) {
            prompt[k] = (char) ('a' + any(LETTERS));
        }

        prompt[DEPTH] = '\0';
        n = engine_size / kvr_router_params(&near_zone.router)->block_size;

        if (!engine_has(prompt, n * model_depth(prompt, 1),
                        n * model_depth(prompt, 2),
                        n * model_depth(prompt, 3)))
        {
            return false;
        }
    }

    return true;
}


static bool
run(const kind_t *kind, uint64_t seed, uint32_t size)
{
    bool      good;
    uint32_t  i;

    state = seed * 2654435761u + 88172645463325252u;
    memset(model, 0, sizeof(model));

    engine_open(kind, true, 0);
    engine_size = size;
    good = true;

    for (i = 0; good && i < ROUNDS; i++) {

        switch (any(20)) {

        case 0:
            random_offload();
            break;

        case 1:
            random_offload();
            random_offload();
            break;

        case 2: case 3: case 4: case 5: case 6: case 7: case 8: case 9:
            random_remove();
            break;

        case 10:
            if (any(20) == 0) {
                memset(model, 0, sizeof(model));
                cleared();
            }

            break;

        default:
            random_store();
            break;
        }

        if (i % 3 == 0) {
            good = agrees() && emission_fits;
        }
    }

    if (!good) {
        note("%s, seed %u, event %u", kind->name, (unsigned) seed, i);
    }

    engine_close();

    return good;
}


int
main(void)
{
    bool      good;
    size_t    i;
    uint64_t  seed;

    for (i = 0; i < KINDS; i++) {

        good = true;

        for (seed = 1; good && seed <= 12; seed++) {
            good = run(&kinds[i], seed, seed % 3 ? 4 : 8);
        }

        ok(good, "%s: what the engine holds is found, and nothing else",
           kinds[i].name);
    }

    ok(refused > 50, "%u stores were refused for their parents",
       (unsigned) refused);

    return done();
}
