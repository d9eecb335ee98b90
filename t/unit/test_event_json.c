/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Engines' events in JSON, what tells the dialects from one another, and the
 * fields of RFC 1527.
 */


#include "decode.h"


#define EV(i)  (&got.event[i].ev)

#define STORED  "{'type':'BlockStored','block_hashes':[18446744073709551615," \
                "-2],'parent_block_hash':null,'token_ids':[1,2,300,70000],"   \
                "'block_size':2,'medium':'GPU','lora_name':'ad'}"


static bool
stored(void)
{
    return EV(0)->kind == KVR_STORE && EV(0)->verdict == KVR_KEEP
           && EV(0)->nhandles == 2 && got.event[0].handles[0] == UINT64_MAX
           && got.event[0].handles[1] == (uint64_t) -2
           && EV(0)->ntokens == 4 && got.event[0].tokens[2] == 300
           && got.event[0].tokens[3] == 70000 && EV(0)->block_size == 2
           && strcmp(got.event[0].lora, "ad") == 0;
}


static void
test_forms(void)
{
    decode_json(STORED);
    ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 1
       && got.msg.form == KVR_FORM_BARE && !got.msg.counted && stored(),
       "one event may be JSON");

    decode_json("[" STORED ",{'event_type':'removed','seq_hashes':[7]}]");
    ok(got.n == 2 && got.ended == KVR_DONE && stored()
       && EV(1)->kind == KVR_REMOVE && got.event[1].handles[0] == 7,
       "a list of events too");

    decode_json(STORED "\n{'type':'AllBlocksCleared'}\n");
    ok(got.n == 2 && got.ended == KVR_DONE && stored()
       && EV(1)->kind == KVR_CLEAR, "and events line by line");

    decode_json("[1.5,[" STORED "],3]");
    ok(got.n == 1 && got.ended == KVR_DONE && stored() && EV(0)->rank == 3,
       "a batch is one, with its rank");

    decode_json("[7, [['BlockRemoved', [7], 'cpu']]]");
    ok(got.n == 1 && EV(0)->kind == KVR_REMOVE && EV(0)->tier == KVR_HOST,
       "a batch's events may be arrays");

    decode_json("{'ts':-1.25e3,'events':[" STORED "],"
                "'data_parallel_rank':2}");
    ok(got.n == 1 && got.ended == KVR_DONE && stored() && EV(0)->rank == 2,
       "a batch may be a map");

    decode_json("{'x':[-1,-32,-33,'y',[[]],{},true,false,1e400],"
                "'event_type':'removed','block_hashes':[1]}");
    ok(got.n == 1 && EV(0)->verdict == KVR_KEEP,
       "other values are passed over");

    decode_json("{'type':'BlockStored','event_type':'removed',"
                "'block_hashes':[1]}");
    ok(got.n == 1 && EV(0)->verdict == KVR_REFUSED
       && EV(0)->why == KVR_WHY_TYPE, "an event of two types is refused");

    decode_json("[['BlockStored',[1],null,[1,2],2],['BlockRemoved',[1]]]");
    ok(got.n == 2 && EV(0)->verdict == KVR_KEEP && EV(0)->kind == KVR_STORE
       && EV(1)->verdict == KVR_KEEP && EV(1)->kind == KVR_REMOVE,
       "events that are arrays may be in a list");

    decode_json("['BlockRemoved',[1]] ['AllBlocksCleared']");
    ok(got.n == 2 && EV(0)->verdict == KVR_KEEP && EV(0)->kind == KVR_REMOVE
       && EV(1)->verdict == KVR_KEEP && EV(1)->kind == KVR_CLEAR,
       "or one after another");

    decode_json("['BlockRemoved',[1]]");
    ok(got.n == 1 && EV(0)->verdict == KVR_KEEP && EV(0)->kind == KVR_REMOVE,
       "or alone");

    decode_json("[['x',1],{'worker_id':'BlockStored','event':{'data':"
                "'cleared'}},['BlockStored']]");
    ok(got.n == 3 && EV(0)->why == KVR_WHY_TYPE
       && EV(1)->verdict == KVR_KEEP && EV(1)->kind == KVR_CLEAR
       && got.msg.form == KVR_FORM_ROUTER_EVENT,
       "other arrays, and later ones, are no events of an engine");

    decode_json(" [ ] ");
    ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 0
       && got.msg.empty, "an empty list may be of anyone");

    decode_json("[null]");
    ok(got.n == 1 && !got.msg.empty, "one with a value in it is not empty");

    decode_json("[" STORED ", 7, null, [], {'type':'AllBlocksCleared'}]");
    ok(got.n == 5 && EV(0)->verdict == KVR_KEEP
       && EV(1)->why == KVR_WHY_TYPE && EV(2)->why == KVR_WHY_TYPE
       && EV(3)->why == KVR_WHY_TYPE && EV(4)->kind == KVR_CLEAR,
       "what is no event is refused, its neighbours are kept");

    decode_json("{'type':'AllBlocksCleared','block_hashes':[1,}");
    ok(got.opened == KVR_INVALID && got.why == KVR_WHY_SYNTAX
       && got.detail[0] != '\0', "broken JSON has no events");

    decode_json("{'type':'AllBlocksCleared','x':[[[[[[[[[[[[[[[[[[[[[[[[[[[["
                "[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}");
    ok(got.opened == KVR_INVALID && got.why == KVR_WHY_LIMIT,
       "nor has what is nested too deep");

    decode_json("{'type':'AllBlocksCleared','x':[[[[[[[[]]]]]]]]}");
    ok(got.n == 1 && EV(0)->why == KVR_WHY_LIMIT,
       "an event nested too deep is refused");
}


/* As much msgpack as JSON can become. */
static void
test_growth(void)
{
    size_t  i, k;
    char   *text, *p;

    static const char *const  worst[] = {
        "[]", "{}", "-33", "1.5", "1e1", "-1", "[-33]", "{\"\":[]}", "\"\"",
        "[[[]]]"
    };

    text = malloc(1u << 20);

    for (i = 0; i < sizeof(worst) / sizeof(worst[0]); i++) {
        p = text;
        p += sprintf(p, "{\"type\":\"AllBlocksCleared\",\"x\":[");

        for (k = 0; k < 20000; k++) {
            p += sprintf(p, "%s%s", k == 0 ? "" : ",", worst[i]);
        }

        p += sprintf(p, "]}");
        decode_bytes(text, (size_t) (p - text));

        ok(got.n == 1 && got.ended == KVR_DONE && EV(0)->verdict == KVR_KEEP,
           "many times %s is room enough", worst[i]);
    }

    free(text);
}


static void
test_dialects(void)
{
    decode_json("[{'x':1,'worker_id':7,'event':{'data':'cleared'}}]");
    ok(got.n == 1 && got.msg.form == KVR_FORM_ROUTER_EVENT
       && got.msg.counted, "worker_id is a RouterEvent's");

    decode_json("[{'event_id':0,'data':{'type':'created'}}]");
    ok(got.n == 1 && got.msg.form == KVR_FORM_BARE && !got.msg.counted
       && EV(0)->kind == KVR_CLEAR, "data is TensorRT-LLM's");

    decode_json("[{'event_id':0,'event_type':'cleared','data':{}}]");
    ok(got.n == 1 && got.msg.form == KVR_FORM_BARE
       && EV(0)->kind == KVR_CLEAR && EV(0)->event_id == 0
       && EV(0)->has_event_id, "an event_type is RFC 1527's");

    decode_json("[{'x':{'data':1},'y':[{'type':1}],'worker_id':7,'event':"
                "{'data':'cleared'}}]");
    ok(got.n == 1 && got.msg.form == KVR_FORM_ROUTER_EVENT,
       "names deeper inside tell nothing");

    decode_json("[]");
    ok(got.n == 0 && got.opened == KVR_OK && got.ended == KVR_DONE,
       "an empty list is fine in any");
}


static void
test_rfc_1527(void)
{
#define RFC(type, more)                                                       \
    "{'event_id': 12, 'timestamp': 1, 'event_type': '" type "', "             \
    "'model_name': 'm', 'block_size': 2, 'additional_salt': null, "           \
    "'lora_name': null, 'backend_id': 'b', 'medium': 'cpu', 'dp_rank': 4, "   \
    more "}"

    ok(decode_event(RFC("stored", "'tenant_id': 'default', 'seq_hashes': "
                        "[42, 43], 'base_block_idx': 0, 'parent_hash': null,"
                        " 'token_ids': [1, 2, 3, 4]"),
                    KVR_KEEP, KVR_WHY_NONE)
       && EV(0)->rank == 4 && EV(0)->tier == KVR_HOST
       && EV(0)->has_event_id && EV(0)->event_id == 12
       && EV(0)->ntokens == 4 && EV(0)->block_size == 2
       && got.event[0].handles[1] == 43, "a store has all its fields");

    ok(decode_event(RFC("stored", "'tenant_id': null, 'seq_hashes': [42], "
                        "'base_block_idx': null, 'parent_hash': null, "
                        "'token_ids': null"), KVR_KEEP, KVR_WHY_NONE)
       && EV(0)->ntokens == 0 && EV(0)->block_size == 0,
       "one without tokens adds a tier");

    ok(decode_event(RFC("stored", "'seq_hashes': [42], 'base_block_idx': "
                        "null, 'parent_hash': null, 'token_ids': [1, 2]"),
                    KVR_REFUSED, KVR_WHY_PARENT),
       "one that may have a parent isn't put at the root");

    ok(decode_event(RFC("stored", "'seq_hashes': [42], 'base_block_idx': "
                        "null, 'parent_hash': 41, 'token_ids': [1, 2]"),
                    KVR_KEEP, KVR_WHY_NONE) && EV(0)->parent == 41,
       "one that names it goes there");

    ok(decode_event(RFC("removed", "'seq_hashes': [42], 'block_hashes': "
                        "[42], 'type': 'BlockRemoved', 'base_block_idx': "
                        "null"), KVR_KEEP, KVR_WHY_NONE)
       && EV(0)->nhandles == 1 && EV(0)->kind == KVR_REMOVE,
       "a field may have two names");

    ok(decode_event(RFC("cleared", "'tenant_id': ''"), KVR_KEEP,
                    KVR_WHY_NONE) && EV(0)->rank == 4, "a clear");

    ok(decode_event(RFC("cleared", "'tenant_id': 'other'"), KVR_FILTERED,
                    KVR_WHY_EXTRA_KEY)
       && decode_event(RFC("removed", "'tenant_id': 'other', 'seq_hashes': "
                           "[1]"), KVR_FILTERED, KVR_WHY_EXTRA_KEY)
       && decode_event(RFC("stored", "'tenant_id': 7, 'seq_hashes': [1]"),
                       KVR_FILTERED, KVR_WHY_EXTRA_KEY),
       "another tenant's events are filtered, the clear too");

    ok(decode_event(RFC("removed", "'group_id': '7', 'seq_hashes': [1]"),
                    KVR_FILTERED, KVR_WHY_GROUP) && EV(0)->group == 7
       && decode_event(RFC("removed", "'group_id': '0', 'seq_hashes': [1]"),
                       KVR_KEEP, KVR_WHY_NONE)
       && decode_event(RFC("removed", "'group_id': -1, 'seq_hashes': [1]"),
                       KVR_REFUSED, KVR_WHY_SYNTAX),
       "a group may be a string of digits");
}


/* What the master of Mooncake's store says, versions of 2026. */

static void
test_object_keys(void)
{
#define STORED_OBJECT(key, hashes, group)                                     \
    RFC("stored", "'type': 'BlockStored', 'tenant_id': 'default', "           \
        "'group_id': " group ", 'object_key': " key ", 'seq_hashes': " hashes \
        ", 'block_hashes': " hashes ", 'base_block_idx': null, "              \
        "'parent_hash': null, 'token_ids': null, 'parent_block_hash': null")
#define REMOVED_OBJECT(key, hashes)                                           \
    RFC("removed", "'type': 'BlockRemoved', 'tenant_id': 'default', "         \
        "'group_id': null, 'object_key': " key ", 'seq_hashes': " hashes      \
        ", 'base_block_idx': null")
#define VLLM_KEY                                                              \
    "'m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@00000000000000ff'"

    ok(decode_event(STORED_OBJECT("'42'", "[]", "null"), KVR_KEEP,
                    KVR_WHY_NONE)
       && EV(0)->nhandles == 1 && got.event[0].handles[0] == 42
       && EV(0)->ntokens == 0 && EV(0)->tier == KVR_HOST
       && EV(0)->kind == KVR_STORE && EV(0)->rank == 4
       && decode_event(STORED_OBJECT("'0xFFffffffffffffff'", "[]", "''"),
                       KVR_KEEP, KVR_WHY_NONE)
       && EV(0)->nhandles == 1 && got.event[0].handles[0] == UINT64_MAX,
       "an object whose key is a number is that block");

    ok(decode_event(REMOVED_OBJECT("'42'", "[]"), KVR_KEEP, KVR_WHY_NONE)
       && EV(0)->nhandles == 1 && got.event[0].handles[0] == 42
       && EV(0)->kind == KVR_REMOVE, "also when it is removed");

    ok(decode_event(STORED_OBJECT("'0x2a'", "[42]", "'0'"), KVR_KEEP,
                    KVR_WHY_NONE)
       && EV(0)->nhandles == 1 && got.event[0].handles[0] == 42,
       "hashes that are said are taken");

    ok(decode_event(STORED_OBJECT(VLLM_KEY, "[]", "'0'"), KVR_FILTERED,
                    KVR_WHY_OBJECT_KEY)
       && EV(0)->has_event_id && EV(0)->event_id == 12
       && decode_event(STORED_OBJECT(VLLM_KEY, "[255]", "'0'"), KVR_FILTERED,
                       KVR_WHY_OBJECT_KEY) && EV(0)->nhandles == 0
       && decode_event(REMOVED_OBJECT(VLLM_KEY, "[255]"), KVR_FILTERED,
                       KVR_WHY_OBJECT_KEY) && EV(0)->nhandles == 0,
       "an object that one process of an engine stored is filtered, its block "
       "is left as it was");

    ok(decode_event(STORED_OBJECT("'0x'", "[]", "null"), KVR_FILTERED,
                    KVR_WHY_OBJECT_KEY)
       && decode_event(STORED_OBJECT("'0x12345678123456789'", "[]", "null"),
                       KVR_FILTERED, KVR_WHY_OBJECT_KEY)
       && decode_event(STORED_OBJECT("'18446744073709551616'", "[]", "null"),
                       KVR_FILTERED, KVR_WHY_OBJECT_KEY)
       && decode_event(STORED_OBJECT("['x', {'y': 1}]", "[]", "null"),
                       KVR_FILTERED, KVR_WHY_OBJECT_KEY)
       && decode_event(STORED_OBJECT("'42'", "[42]", "'of one prompt'"),
                       KVR_FILTERED, KVR_WHY_OBJECT_KEY),
       "so is one whose key is no number of 64 bits, or whose group has a "
       "name");
}


static void
test_advice(void)
{
#define MAP(more)                                                             \
    "{'type': 'BlockStored', 'block_hashes': [7], 'parent_block_hash': null," \
    " 'token_ids': [1, 2], 'block_size': 2, " more "}"

    ok(decode_event(MAP("'origin': 'NEW'"), KVR_KEEP, KVR_WHY_NONE)
       && !EV(0)->reused
       && decode_event(MAP("'origin': 'REUSED'"), KVR_KEEP, KVR_WHY_NONE)
       && EV(0)->reused
       && decode_event(MAP("'origin': 'reused'"), KVR_KEEP, KVR_WHY_NONE)
       && EV(0)->reused
       && decode_event(MAP("'origin': null"), KVR_KEEP, KVR_WHY_NONE)
       && !EV(0)->reused
       && decode_event(MAP("'origin': {'x': 1}"), KVR_KEEP, KVR_WHY_NONE)
       && !EV(0)->reused,
       "a store may say that it is no new copy");

    ok(decode_event(MAP("'block_mm_infos': [null]"), KVR_KEEP, KVR_WHY_NONE)
       && decode_event(MAP("'block_mm_infos': null"), KVR_KEEP, KVR_WHY_NONE)
       && decode_event(MAP("'block_mm_infos': [{'mm_objects': [{'mm_hash': 1"
                           ", 'offsets': []}]}]"),
                       KVR_FILTERED, KVR_WHY_EXTRA_KEY)
       && decode_event(MAP("'block_mm_infos': 7"), KVR_FILTERED,
                       KVR_WHY_EXTRA_KEY),
       "a block with an image beside it isn't hashed as if it were plain");

    ok(decode_event("{'type': 'BlockStored', 'block_hashes': [7], "
                    "'token_ids': [], 'medium': 'CPU'}",
                    KVR_KEEP, KVR_WHY_NONE) && EV(0)->tier == KVR_HOST,
       "an offload event needs neither parent nor block size");

    ok(decode_event("{'type': 'BlockStored', 'block_hashes': [7], "
                    "'medium': 'CPU'}", KVR_REFUSED, KVR_WHY_SYNTAX),
       "but says that it has no tokens");

    ok(decode_event(MAP("'metadata': {'session_id': 's', 'cache_salt': 't'}"),
                    KVR_KEEP, KVR_WHY_NONE)
       && strcmp(got.event[0].salt, "t") == 0
       && decode_event("['BlockStored', [7], null, [1], 1, null, 'GPU', "
                       "{'cache_salt': 't'}, null]", KVR_KEEP, KVR_WHY_NONE)
       && strcmp(got.event[0].salt, "t") == 0,
       "SGLang's metadata has the salt, by name and by position");

    /* as SGLang 0.5.23 sends it */

    ok(decode_event("{'type': 'BlockStored', 'block_hashes': [-7], "
                    "'parent_block_hash': null, 'token_ids': [1, 2], "
                    "'block_size': 2, 'lora_id': null, 'medium': 'GPU', "
                    "'cache_salt': 'tenant', 'session_id': 's', "
                    "'lora_name': 'sql'}", KVR_KEEP, KVR_WHY_NONE)
       && strcmp(got.event[0].salt, "tenant") == 0
       && strcmp(got.event[0].lora, "sql") == 0
       && decode_event(MAP("'cache_salt': null"), KVR_KEEP, KVR_WHY_NONE)
       && got.event[0].ev.salt_len == 0
       && decode_event(MAP("'cache_salt': 7"), KVR_REFUSED, KVR_WHY_SYNTAX),
       "a newer one's events have it themselves");

    ok(decode_event(MAP("'cache_salt': 't', 'metadata': {'cache_salt': 't'}, "
                        "'additional_salt': 't'"), KVR_KEEP, KVR_WHY_NONE)
       && strcmp(got.event[0].salt, "t") == 0
       && decode_event(MAP("'cache_salt': 't', 'metadata': {'cache_salt': "
                           "null}, 'additional_salt': ''"),
                       KVR_KEEP, KVR_WHY_NONE)
       && strcmp(got.event[0].salt, "t") == 0,
       "a salt may be said in several places");

    ok(decode_event(MAP("'cache_salt': 't', 'metadata': {'cache_salt': 'u'}"),
                    KVR_FILTERED, KVR_WHY_EXTRA_KEY)
       && decode_event(MAP("'metadata': {'cache_salt': 'u'}, 'cache_salt': "
                           "'t'"), KVR_FILTERED, KVR_WHY_EXTRA_KEY)
       && decode_event(MAP("'additional_salt': 'tt', 'cache_salt': 't', "
                           "'block_mm_infos': null"),
                       KVR_FILTERED, KVR_WHY_EXTRA_KEY),
       "of two that differ nobody can tell which it is");
}


/*
 * Numbers that are longer in msgpack than thrice their text fill the room that
 * there is, and lists follow.  The room for so many bytes is 4096.
 */

static void
test_room(void)
{
    char      text[1364];
    bool      whole;
    uint32_t  i, depth;

    whole = true;

    for (depth = 1; depth < 8; depth++) {

        memset(text, ' ', sizeof(text));
        text[sizeof(text) - 1] = '\0';

        memcpy(text, "{'type':1}", 10);

        for (i = 10; i < sizeof(text) - 1 - 2 * depth - 1; i += 2) {
            memcpy(text + i, "-0", 2);
        }

        memset(text + sizeof(text) - 1 - 2 * depth, '[', depth);
        memset(text + sizeof(text) - 1 - depth, ']', depth);

        decode_json(text);
        whole = whole && got.opened == KVR_OK && got.ended == KVR_DONE;
    }

    ok(whole, "no text is longer than its room as msgpack");
}


int
main(void)
{
    decoder = kvr_decoder_create();

    test_forms();
    test_room();
    test_growth();
    test_dialects();
    test_rfc_1527();
    test_object_keys();
    test_advice();

    kvr_decoder_destroy(decoder);

    return done();
}
