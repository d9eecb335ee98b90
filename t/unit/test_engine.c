/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What an engine's own events mean: copies, filtered blocks, groups, blocks
 * that come back, in every kind of zone; and that what is emitted makes
 * another zone answer the same.
 */


#include "engine.h"


static void
test_copies(void)
{
    uint32_t  i;

    stored(0, "10 11 12", "abc", KVR_DEVICE);
    ok(emitted == 1, "a chain is emitted at once");

    stored(11, "12", "c", KVR_DEVICE);
    ok(engine_rc == KVR_OK && emitted == 0,
       "another copy of a block is not emitted");

    removed("12", KVR_DEVICE);
    ok(emitted == 0, "nor is the removal of one of two");
    has("abc", 3, 3, 3, "a block is held while one copy is left");

    removed("12", KVR_DEVICE);
    ok(emitted == 1, "the last removal is emitted");
    has("abc", 2, 2, 2, "and takes it out");

    stored(11, "12", "c", KVR_DEVICE);
    stored(11, "12 13", "cd", KVR_DEVICE);
    ok(emitted == 1, "of a chain only the blocks that are new are emitted");
    has("abcd", 4, 4, 4, "at their places");

    offloaded("12", KVR_HOST);
    removed("12", KVR_DEVICE);
    removed("12", KVR_DEVICE);
    has("abcd", 2, 4, 4, "copies are counted tier by tier");

    stored(11, "12", "c", KVR_DEVICE);
    removed("12", KVR_DEVICE);
    has("abcd", 2, 4, 4, "and begin at one when all were removed");

    /* a prompt that ends with a block has that block computed each time */

    for (i = 0; i < 1000; i++) {
        stored(11, "12", "c", KVR_DEVICE);
    }

    for (i = 0; i < 999; i++) {
        removed("12", KVR_DEVICE);
    }

    has("abcd", 4, 4, 4, "the last of a thousand copies is one, too");

    removed("12", KVR_DEVICE);
    has("abcd", 2, 4, 4, "and its removal the last");

    stored(10, "12", "x", KVR_DEVICE);
    has("abcd", 2, 2, 2, "a handle stored for another block leaves the first");
    has("ax", 2, 2, 2, "names the second");

    removed("12", KVR_DEVICE);
    has("ax", 1, 1, 1, "and has one copy of it");

    removed("99 10", KVR_DEVICE);
    ok(emitted == 1, "handles that nobody knows don't disturb others");
    has("ab", 0, 0, 0, "a root that is gone ends all matches");
}


static void
test_what_engines_say(void)
{
    stored(0, "10", "a", KVR_DEVICE);
    stored(0, "10", "a", KVR_DEVICE);
    stored(0, "10", "a", KVR_DEVICE);

    published("{'type': 'BlockRemoved', 'block_hashes': [10], "
              "'remaining_copy_counts': [1]}");
    has("a", 1, 1, 1, "who says that one copy is left is believed");

    published("{'type': 'BlockRemoved', 'block_hashes': [10]}");
    has("a", 0, 0, 0, "the one that is left is the last");

    stored(0, "10", "a", KVR_DEVICE);
    stored(0, "10", "a", KVR_DEVICE);

    published("{'type': 'BlockRemoved', 'block_hashes': [10], "
              "'remaining_copy_counts': [0]}");
    has("a", 0, 0, 0, "and so is one of whom none is left");

    published("{'type': 'BlockStored', 'block_hashes': [10], "
              "'parent_block_hash': null, 'token_ids': [97, 97, 97, 97], "
              "'block_size': 4, 'origin': 'NEW'}");
    has("a", 1, 1, 1, "a block of which the origin is told is stored");

    published("{'type': 'BlockStored', 'block_hashes': [10], "
              "'parent_block_hash': null, 'token_ids': [97, 97, 97, 97], "
              "'block_size': 4, 'origin': 'REUSED'}");
    published("{'type': 'BlockRemoved', 'block_hashes': [10]}");
    has("a", 0, 0, 0, "one that is announced again is no other copy");
}


static void
test_no_counting(void)
{
    stored(0, "10 11", "ab", KVR_DEVICE);
    stored(10, "11", "b", KVR_DEVICE);
    removed("11", KVR_DEVICE);
    has("ab", 1, 1, 1, "without counting the first removal removes");

    published("{'type': 'BlockRemoved', 'block_hashes': [10], "
              "'remaining_copy_counts': [1]}");
    has("ab", 0, 0, 0, "whatever is said of copies");
}


static void
test_filtered(void)
{
    published("['BlockStored', [10, 11, 12], null, [97, 97, 97, 97, 98, 98, "
              "98, 98, 99, 99, 99, 99], 4, null, 'GPU', null, "
              "[null, ['secret'], null]]");
    ok(engine_rc == KVR_OK && engine_why == KVR_WHY_EXTRA_KEY,
       "the blocks before one that can't be told are stored");
    has("abc", 1, 1, 1, "and no others");
    is_u64(engine_counted(KVR_WHY_EXTRA_KEY), 1, "what is not is counted");

    stored(12, "13", "d", KVR_DEVICE);
    ok(engine_rc == KVR_DECLINED && engine_why == KVR_WHY_EXTRA_KEY,
       "what hangs on a filtered block is filtered, for the same reason");

    stored(13, "14", "e", KVR_DEVICE);
    ok(engine_rc == KVR_DECLINED && engine_why == KVR_WHY_EXTRA_KEY,
       "and what hangs on that");

    removed("12 13", KVR_DEVICE);
    ok(engine_rc == KVR_DECLINED && emitted == 0
       && engine_counted(KVR_WHY_EXTRA_KEY) == 4
       && engine_counted(KVR_WHY_PARENT) == 0,
       "a filtered block's removal is filtered");

    stored(12, "13", "d", KVR_DEVICE);
    ok(engine_rc == KVR_DECLINED, "of which there may have been more copies");

    stored(10, "12", "c", KVR_DEVICE);
    has("ac", 2, 2, 2, "a block that can be told at last is stored");

    stored(77, "78", "d", KVR_DEVICE);
    ok(engine_rc == KVR_INVALID && engine_why == KVR_WHY_PARENT,
       "a parent that nobody knows is refused");

    published("['BlockStored', [20], null, [97, 97, 97, 97], 4, null, "
              "'TAPE']");
    stored(20, "21", "b", KVR_DEVICE);
    ok(engine_rc == KVR_DECLINED && engine_why == KVR_WHY_MEDIUM,
       "so it is with an unknown medium");

    offloaded("20", KVR_HOST);
    ok(engine_rc == KVR_DECLINED && engine_why == KVR_WHY_MEDIUM,
       "and with a tier of a filtered block");

    published("{'type': 'BlockStored', 'block_hashes': [30], "
              "'parent_block_hash': null, 'token_ids': [97, 97, 97, 97], "
              "'block_size': 4, 'locality': 'REMOTE'}");
    stored(30, "31", "b", KVR_DEVICE);
    ok(engine_why == KVR_WHY_LOCALITY, "and with another locality");

    published("['BlockStored', [40, 41], 10, [98, 98, 98, 98, 99], 4]");
    ok(engine_rc == KVR_OK && engine_why == KVR_WHY_PARTIAL,
       "a partial block leaves the whole ones before it");
    has("abc", 2, 2, 2, "at their places");

    cleared();
    stored(12, "13", "d", KVR_DEVICE);
    ok(engine_rc == KVR_INVALID && engine_why == KVR_WHY_PARENT,
       "a clear forgets what was filtered");
}


static bool  classes;               /* the index has classes of groups */


static void
test_groups(void)
{
#define IN_GROUP(hash, parent, group, kind)                                   \
    "['BlockStored', [" hash "], " parent ", [97, 97, 97, 97], 4, null, "     \
    "'GPU', null, null, " group ", " kind "]"

    ok(!(engine_flags() & KVR_WORKER_HYBRID),
       "a worker is not hybrid before it says so");

    published(IN_GROUP("10", "null", "1", "'full_attention'"));
    has("a", 1, 1, 1, "a group of full attention is indexed, whatever its "
        "number");

    published(IN_GROUP("20", "null", "0", "'sliding_window'"));
    ok(engine_rc == KVR_DECLINED && engine_why == KVR_WHY_GROUP
       && engine_flags() & KVR_WORKER_HYBRID,
       "a sliding window is not, and the worker is hybrid");

    published("['BlockRemoved', [10], 'GPU', 0]");
    has("a", 1, 1, 1, "a removal is of the kind that its group's stores said");

    published("['BlockRemoved', [10], 'GPU', 1]");
    has("a", 0, 0, 0, "which says what is indexed, too");

    published(IN_GROUP("10", "null", "1", "null"));
    has("a", 1, 1, 1, "a store without a kind has its group's");

    published(IN_GROUP("11", "10", "2", "null"));
    ok(engine_why == KVR_WHY_GROUP, "a group of which nobody said is not "
       "indexed");

    published("['BlockStored', [12], 10, [97], 4, null, 'GPU', null, null, "
              "1]");
    ok(engine_rc == KVR_DECLINED && engine_why == KVR_WHY_PARTIAL,
       "nor a store of a group by memory that is filtered otherwise");

    published("['BlockStored', [13], 10, [97, 97, 97, 97], 4, null, 'GPU', "
              "null, [['x']], 1]");
    ok(engine_rc == KVR_DECLINED && engine_why == KVR_WHY_EXTRA_KEY,
       "whose reason is told");

    published("['BlockStored', [15, 16], 10, [98, 98, 98, 98, 97, 97, 97, "
              "97], 4, null, 'GPU', null, [null, ['x']], 1]");
    ok(engine_rc == KVR_OK && engine_why == KVR_WHY_EXTRA_KEY,
       "also where the blocks before that are indexed");
    published("['BlockRemoved', [15], 'GPU', 1]");

    published("['BlockStored', [14], 10, [97, 97, 97, 97, 97], 4, null, "
              "'GPU', null, null, 1]");
    ok(engine_rc == KVR_INVALID && engine_why == KVR_WHY_LENGTH,
       "or refused");

    published(IN_GROUP("10", "null", "3", "'mamba'"));
    has("a", 1, 1, 1, "one handle may be of two groups");

    published("['BlockRemoved', [10], 'GPU', 3]");

    if (classes) {
        has("a", 0, 0, 0, "a block that one of them lost is no hit");

    } else {
        has("a", 1, 1, 1, "a positional index knows nothing of the other one");
    }

    published(IN_GROUP("10", "null", "3", "'mamba'"));

    stored(10, "11", "b", KVR_DEVICE);
    ok(engine_why == KVR_WHY_GROUP, "group 0 is not indexed any more");

    engine_rank = 1;
    stored(0, "10", "a", KVR_DEVICE);
    has("a", 1, 1, 1, "groups are remembered rank by rank");
    engine_rank = 0;

    kvr_normalise_destroy(engine);
    engine = kvr_normalise_create(&near_zone.router, NULL);

    published("['BlockRemoved', [10], 'GPU', 1]");
    has("a", 0, 0, 0, "who takes over and does not know a group removes what "
        "is removed");
}


/* Behind its whole blocks vLLM may publish a smaller one, of a finer chain. */
static void
test_tails(void)
{
#define IN_BLOCK(hash, parent, tokens, size, group)                           \
    "['BlockStored', [" hash "], " parent ", [" tokens "], " size ", null, "  \
    "'GPU', null, null, " group ", 'full_attention']"
#define FOUR   "97, 97, 97, 97"
#define EIGHT  FOUR ", " FOUR

    published(IN_BLOCK("11", "90", FOUR, "4", "1"));
    ok(engine_rc == KVR_INVALID && engine_why == KVR_WHY_PARENT,
       "a store of a size unheard of needs its parent");

    published(IN_BLOCK("10", "null", EIGHT, "8", "1"));
    published(IN_BLOCK("11", "90", FOUR, "4", "1"));
    ok(engine_rc == KVR_DECLINED && engine_why == KVR_WHY_PARTIAL
       && emitted == 0, "one smaller than its group's is part of a block");

    published(IN_BLOCK("12", "11", FOUR, "4", "1"));
    ok(engine_rc == KVR_DECLINED && engine_why == KVR_WHY_PARTIAL,
       "and what hangs on that");

    published("['BlockRemoved', [11], 'GPU', 1]");
    ok(engine_rc == KVR_DECLINED && engine_why == KVR_WHY_PARTIAL
       && emitted == 0, "its removal is filtered, too");

    published(IN_BLOCK("13", "10", FOUR, "4", "1"));
    has("aaa", 3, 3, 3, "right behind a whole one it is indexed");

    published(IN_BLOCK("14", "91", EIGHT, "8", "1"));
    ok(engine_rc == KVR_INVALID && engine_why == KVR_WHY_PARENT,
       "a whole one needs its parent");

    published(IN_BLOCK("15", "92", FOUR, "4", "2"));
    ok(engine_rc == KVR_INVALID && engine_why == KVR_WHY_PARENT,
       "so does one of another group");
}


static void
test_offload(void)
{
    stored(0, "10 11 12 13", "abcd", KVR_DEVICE);

    offloaded("12 99", KVR_HOST);
    ok(engine_rc == KVR_OK && engine_why == KVR_WHY_UNKNOWN
       && engine_counted(KVR_WHY_UNKNOWN) == 1,
       "a tier of an unknown block is counted, of a known one taken");

    removed("13 12 11 10", KVR_DEVICE);
    has("abcd", 0, 0, 0, "all of it leaves the device");

    offloaded("10", KVR_HOST);
    ok(engine_rc == KVR_OK, "a late offload is understood");
    has("abcd", 0, 1, 1, "and brings the block back in its tier");

    offloaded("13", KVR_DISK);
    has("abcd", 0, 1, 1, "one behind a hole waits");

    offloaded("11", KVR_HOST);
    has("abcd", 0, 3, 4, "until the hole is filled");

    removed("12", KVR_HOST);
    has("abcd", 0, 2, 2, "a hole is made as ever");

    offloaded("12", KVR_EXTERNAL);
    has("abcd", 0, 2, 2, "external is stored, not scored");

    removed("12", KVR_EXTERNAL);
    removed("10 11", KVR_HOST);
    removed("13", KVR_DISK);
    offloaded("13 12 11 10", KVR_DISK);
    has("abcd", 0, 0, 4, "a chain comes back in whatever order");

    removed("10 11 12 13", KVR_DISK);
    stored(12, "14", "e", KVR_DEVICE);
    ok(engine_rc == KVR_OK, "a child of a block that is gone has a place");
    has("abce", 0, 0, 0, "behind holes");

    stored(0, "10 11 12", "abc", KVR_DEVICE);
    has("abce", 4, 4, 4, "which count again when they are filled");

    offloaded("14", KVR_HOST);
    removed("14", KVR_DEVICE);
    has("abce", 3, 4, 4, "a block may be in two tiers, and leave one");

    cleared();
    offloaded("10", KVR_HOST);
    ok(engine_rc == KVR_DECLINED && engine_why == KVR_WHY_UNKNOWN,
       "a clear forgets what was gone");
}


static void
test_circles(void)
{
    stored(0, "10", "a", KVR_DEVICE);
    stored(10, "11", "b", KVR_DEVICE);
    stored(11, "10", "c", KVR_DEVICE);
    removed("10 11", KVR_DEVICE);

    offloaded("10 11", KVR_HOST);
    ok(engine_rc == KVR_DECLINED && engine_why == KVR_WHY_UNKNOWN,
       "blocks that hang on each other don't come back");
    has("abc", 0, 0, 0, "nor do they leave anything");

    stored(0, "20", "a", KVR_DEVICE);
    stored(20, "20", "b", KVR_DEVICE);
    removed("20", KVR_DEVICE);
    offloaded("20", KVR_HOST);
    ok(engine_rc == KVR_DECLINED, "nor one that hangs on itself");
}


static void
test_spans(void)
{
    engine_size = 8;

    stored(0, "10 11 12", "abc", KVR_DEVICE);
    has("abc", 6, 6, 6, "an engine's block of two is held as two");

    stored(10, "11", "b", KVR_DEVICE);
    removed("11", KVR_DEVICE);
    has("abc", 6, 6, 6, "copies are of the engine's blocks");

    removed("12 11 10", KVR_DEVICE);
    has("abc", 0, 0, 0, "and leave as one");

    offloaded("12 10", KVR_HOST);
    offloaded("11", KVR_DISK);
    has("abc", 0, 2, 6, "and come back as one");

    published("['BlockStored', [20, 21, 22], null, [97, 97, 97, 97, 97, 97, "
              "97, 97, 98, 98, 98, 98, 98, 98, 98, 98, 99, 99, 99, 99, 99, "
              "99, 99, 99], 8, null, 'GPU', null, [null, "
              "['00112233445566778899aabbccddeeff00112233445566778899aabbccdd"
              "eeff'], null]]");
    ok(engine_rc == KVR_OK && engine_why == KVR_WHY_EXTRA_KEY,
       "an image somewhere in such a block filters it and what follows");

    stored(22, "23", "d", KVR_DEVICE);
    ok(engine_rc == KVR_DECLINED && engine_why == KVR_WHY_EXTRA_KEY,
       "and what hangs on that");

    engine_size = 6;
    stored(0, "30", "a", KVR_DEVICE);
    ok(engine_rc == KVR_INVALID && engine_why == KVR_WHY_BLOCK_SIZE,
       "a size that is no multiple is refused");
}


static void
test_seeds(void)
{
    published("['BlockStored', [10], null, [97, 97, 97, 97], 4, null, 'GPU',"
              " 'ad']");
    published("['BlockStored', [11], 10, [98, 98, 98, 98], 4, null, 'GPU']");
    has("ab", 0, 0, 0, "a chain with a LoRA is another chain");

    stored(0, "20", "a", KVR_DEVICE);
    removed("10", KVR_DEVICE);
    offloaded("10", KVR_HOST);
    published("['BlockStored', [12], 10, [98, 98, 98, 98], 4, null, 'GPU']");
    has("ab", 1, 1, 1, "and stays so when it comes back");
}


static void
test_others_clear(void)
{
    stored(0, "10 11", "ab", KVR_DEVICE);
    stored(0, "10 11", "ab", KVR_DEVICE);

    kvr_router_remove_worker(&near_zone.router, "w", 1);
    stored(0, "10", "a", KVR_DEVICE);
    ok(engine_rc == KVR_ERROR, "a worker that was taken out has no events");
}


static void
test_forgotten(void)
{
    uint32_t  i;

    stored(0, "10 11", "ab", KVR_DEVICE);

    for (i = 0; i < 20; i++) {
        near_zone.router.ttl = 1;
        kvr_router_tend(&near_zone.router, later_ms(i * 1000), 10000);
    }

    near_zone.router.ttl = 0;

    stored(11, "12", "c", KVR_DEVICE);
    ok(engine_rc == KVR_DECLINED && engine_why == KVR_WHY_FORGOTTEN
       && engine_counted(KVR_WHY_FORGOTTEN) == 1
       && engine_counted(KVR_WHY_PARENT) == 0,
       "what hangs on a block that we forgot is counted as such");

    stored(12, "13", "d", KVR_DEVICE);
    ok(engine_why == KVR_WHY_FORGOTTEN, "and what hangs on that");

    ok(engine_flags() & KVR_WORKER_TRUNCATED, "the worker is TRUNCATED");

    cleared();
    ok(!(engine_flags() & KVR_WORKER_TRUNCATED),
       "until all that it had is gone");

    stored(11, "12", "c", KVR_DEVICE);
    ok(engine_rc == KVR_INVALID && engine_why == KVR_WHY_PARENT,
       "from then on an unknown parent is refused again");
}


/*
 * Blocks of two, alike in their first half: it is asked for, so that of the
 * second engine block the other half alone is forgotten.
 */

static void
test_forgotten_spans(void)
{
    uint32_t     i;
    uint64_t     locals[2];
    kvr_match_t  m;

    engine_size = 8;

    published("['BlockStored', [10], null, [97, 97, 97, 97, 98, 98, 98, 98],"
              " 8, null, 'GPU']");
    published("['BlockStored', [20], null, [97, 97, 97, 97, 99, 99, 99, 99],"
              " 8, null, 'GPU']");

    engine_size = 4;
    (void) engine_locals("ab", locals);

    /* one of them is asked for then, the other one is not */

    kvr_router_tend(&near_zone.router, later_ms(0), 10000);
    m = engine_found(&near_zone, locals, 2);

    near_zone.router.ttl = 4;

    for (i = 0; i < 2000 && !(engine_flags() & KVR_WORKER_TRUNCATED); i++) {
        m = engine_found(&near_zone, locals, 2);
        kvr_router_tend(&near_zone.router, later_ms(i * 200), 10000);
    }

    m = engine_found(&near_zone, locals, 2);

    near_zone.router.ttl = 0;

    ok(m.device == 2 && engine_flags() & KVR_WORKER_TRUNCATED,
       "of two blocks that begin alike one is forgotten, but its beginning");

    removed("10 20", KVR_DEVICE);
    has("ab", 0, 0, 0, "that goes, too, when the engine removes them");
}


static void
run(const kind_t *kind, const char *what, bool counting, void (*test)(void))
{
    note("%s: %s", kind->name, what);

    engine_open(kind, counting, 0);
    test();
    ok(emission_fits, "%s, %s: all that was emitted was taken", kind->name,
       what);
    engine_close();
}


/* ---- bounds ------------------------------------------------------------- */

static void
test_full(void)
{
    uint64_t               i, handle;
    uint32_t               n;
    kvr_normalise_stats_t  stats;

    engine_open(&kinds[0], true, 64);

    for (handle = 1; handle <= 60; handle++) {
        stored_at(handle - 1, &handle, "a", 1, KVR_DEVICE);
    }

    for (i = 0; i < 60; i++) {
        handle = 1000 + i;
        stored_at(0, &handle, "b", 1, KVR_DEVICE);
        stored_at(0, &handle, "b", 1, KVR_DEVICE);
    }

    kvr_normalise_stats(engine, &stats);
    ok(stats.blocks <= 64 && stats.unremembered > 0,
       "what there is no room for is counted");

    handle = 1059;
    engine_say(KVR_REMOVE, "1059", KVR_DEVICE);
    ok(emitted == 1, "a block that is not remembered has one copy");

    handle = 1000;
    engine_say(KVR_REMOVE, "1000", KVR_DEVICE);
    ok(emitted == 0, "one that is remembered has two");

    for (handle = 60; handle; handle--) {
        char  text[32];

        snprintf(text, sizeof(text), "%u", (unsigned) handle);
        engine_say(KVR_REMOVE, text, KVR_DEVICE);
    }

    kvr_normalise_stats(engine, &stats);
    ok(stats.gone <= 16, "of those gone a quarter is remembered");

    engine_say(KVR_STORE, "1", KVR_HOST);
    ok(engine_rc == KVR_OK, "the last one that went comes back");

    engine_say(KVR_STORE, "60", KVR_HOST);
    ok(engine_rc == KVR_DECLINED && engine_why == KVR_WHY_UNKNOWN,
       "the first one that went does not");

    engine_say(KVR_STORE, "17", KVR_HOST);
    ok(engine_rc == KVR_DECLINED, "nor one whose ancestors are forgotten");

    n = 0;

    for (i = 0; i < 200; i++) {
        char  text[256];

        snprintf(text, sizeof(text), "['BlockStored', [%u], null, "
                 "[97, 97, 97, 97], 4, null, 'TAPE']", (unsigned) (5000 + i));
        published(text);
        n += engine_rc == KVR_DECLINED;
    }

    kvr_normalise_stats(engine, &stats);
    ok(n == 200 && stats.filtered <= 16,
       "of those filtered a quarter is remembered");

    stored(5199, "1", "b", KVR_DEVICE);
    ok(engine_rc == KVR_DECLINED && engine_why == KVR_WHY_MEDIUM,
       "the last of them");

    stored(5000, "1", "b", KVR_DEVICE);
    ok(engine_rc == KVR_INVALID && engine_why == KVR_WHY_PARENT,
       "not the first");

    cleared();
    kvr_normalise_stats(engine, &stats);
    ok(stats.blocks == 0, "a clear makes room");

    stored(0, "7", "a", KVR_DEVICE);
    stored(0, "7", "a", KVR_DEVICE);
    removed("7", KVR_DEVICE);
    has("a", 1, 1, 1, "for others");

    ok(emission_fits, "all that was emitted was taken");
    engine_close();
}


/* ---- save and load ------------------------------------------------------ */

static uint8_t   parts[8][KVR_NORMALISE_PART];
static size_t    part_size[8];
static uint32_t  nparts;


static kvr_rc_t
keep_part(void *data, const void *part, size_t size)
{
    if (nparts == 8 || size > KVR_NORMALISE_PART) {
        return KVR_FULL;
    }

    memcpy(parts[nparts], part, size);
    part_size[nparts++] = size;

    return KVR_OK;
}


/* The far zone's index again beside another engine. */
static void
learn(void *data, const kvr_event_t *ev)
{
    (void) kvr_normalise_event(engine, "w", 1, ev, &engine_why, engine_hear,
                               NULL);
}


static void
test_save(const kind_t *kind)
{
    uint32_t           i, unsound;
    uint64_t           numbers[4], locals[4];
    kvr_event_t        ev;
    kvr_normaliser_t  *old;

    engine_open(kind, true, 0);

    published(IN_GROUP("10", "null", "1", "'full_attention'"));
    published(IN_GROUP("50", "null", "0", "'mamba'"));
    published(IN_BLOCK("60", "10", EIGHT, "8", "1"));
    engine_rank = 1;
    stored(0, "10 11 12", "abc", KVR_DEVICE);
    stored(0, "10 11", "ab", KVR_DEVICE);

    for (i = 0; i < 300; i++) {
        stored(0, "10", "a", KVR_DEVICE);
    }

    stored(12, "13", "d", KVR_DEVICE);
    removed("13", KVR_DEVICE);
    published("['BlockStored', [20, 21], null, [97, 97, 97, 97, 98, 98, 98, "
              "98], 4, null, 'TAPE', 'x', null, 0, null]");

    nparts = 0;
    ok(kvr_normalise_save(engine, "w", 1, keep_part, NULL) == KVR_OK
       && nparts == 2, "%s: a part is saved for each rank", kind->name);

    /* a new engine over a new index: what is held comes from its snapshot */

    old = engine;
    engine = kvr_normalise_create(&near_zone.router, NULL);
    kvr_normalise_destroy(old);

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_CLEAR;
    ev.rank = 1;
    learn(NULL, &ev);

    memset(&ev, 0, sizeof(ev));
    ev.kind = KVR_STORE;
    ev.rank = 1;
    ev.handles = numbers;
    ev.nhandles = engine_numbers("10 11 12", numbers);
    ev.locals = locals;
    ev.nlocals = engine_locals("abc", locals);
    learn(NULL, &ev);

    has("abc", 3, 3, 3, "%s: an index is filled from events with locals",
        kind->name);

    for (i = 0, unsound = 0; i < nparts; i++) {
        unsound += kvr_normalise_load(engine, "w", 1, parts[i], part_size[i])
                   != KVR_OK;
    }

    is_u64(unsound, 0, "%s: the parts are loaded", kind->name);

    removed("10 11 12", KVR_DEVICE);

    for (i = 0; i < 300; i++) {
        removed("10", KVR_DEVICE);
    }

    has("abc", 2, 2, 2, "%s: copies are remembered", kind->name);

    offloaded("12 13", KVR_HOST);
    has("abcd", 2, 4, 4, "%s: and what was gone", kind->name);

    published("{'type': 'BlockStored', 'block_hashes': [22], "
              "'parent_block_hash': 20, 'token_ids': [97, 97, 97, 97], "
              "'block_size': 4}");
    ok(engine_why == KVR_WHY_MEDIUM, "%s: and what was filtered", kind->name);

    engine_rank = 0;
    published("['BlockRemoved', [10], 'GPU', 0]");
    ok(engine_why == (kind->params.index == KVR_INDEX_RADIX
                      ? KVR_WHY_NONE : KVR_WHY_GROUP),
       "%s: and groups", kind->name);

    published(IN_BLOCK("61", "90", FOUR, "4", "1"));
    ok(engine_why == KVR_WHY_PARTIAL, "%s: and their size", kind->name);

    engine_close();
}


static void
test_load_hostile(void)
{
    bool      good;
    uint32_t  i, k;
    uint8_t  *copy;

    engine_open(&kinds[0], true, 64);

    good = true;

    for (i = 0; i < part_size[1]; i++) {
        copy = malloc(i + 1);
        memcpy(copy, parts[1], i);
        good = good
               && kvr_normalise_load(engine, "w", 1, copy, i) == KVR_INVALID;
        free(copy);
    }

    ok(good, "a part cut short anywhere is not loaded");

    srand(7);

    for (i = 0; i < 20000; i++) {
        copy = malloc(part_size[1]);
        memcpy(copy, parts[1], part_size[1]);

        for (k = 0; k < 1 + i % 3; k++) {
            copy[(size_t) rand() % part_size[1]] = (uint8_t) rand();
        }

        (void) kvr_normalise_load(engine, "w", 1, copy, part_size[1]);
        free(copy);

        if (i % 100 == 0) {
            offloaded("10 11 12 13", KVR_HOST);
            stored(13, "14", "e", KVR_DEVICE);
            removed("10 11 12 13 14", KVR_HOST);
        }
    }

    ok(emission_fits, "20000 damaged parts do no harm");

    ok(kvr_normalise_load(engine, "nobody", 6, parts[1], part_size[1])
       == KVR_ERROR
       && kvr_normalise_save(engine, "nobody", 6, keep_part, NULL)
          == KVR_ERROR,
       "an unknown worker has no parts");

    engine_close();
}


int
main(void)
{
    size_t  i;

    for (i = 0; i < KINDS; i++) {
        run(&kinds[i], "copies", true, test_copies);
        run(&kinds[i], "what engines say", true, test_what_engines_say);
        run(&kinds[i], "no counting", false, test_no_counting);
        run(&kinds[i], "filtered", true, test_filtered);
        classes = kinds[i].params.index == KVR_INDEX_RADIX;
        run(&kinds[i], "groups", true, test_groups);
        run(&kinds[i], "tails", true, test_tails);
        run(&kinds[i], "offload", true, test_offload);
        run(&kinds[i], "circles", true, test_circles);
        run(&kinds[i], "spans", true, test_spans);
        run(&kinds[i], "seeds", true, test_seeds);
        run(&kinds[i], "others clear", true, test_others_clear);
        run(&kinds[i], "forgotten", true, test_forgotten);
        run(&kinds[i], "forgotten spans", true, test_forgotten_spans);
        test_save(&kinds[i]);
    }

    test_full();
    test_load_hostile();

    return done();
}
