
# The turn cache of a zone with a model, as the status shows it.

use lib 't/lib';
use KVRouter;

use Cwd qw( abs_path );

$ENV{TEST_NGINX_MODEL} = abs_path('t/vectors/model');

scripts(http_config => <<'_EOC_', config => <<'_EOC_');
    kv_router_zone   zone=main:16m;
    kv_router_model  main $TEST_NGINX_MODEL engine=vllm turns=2m;
_EOC_
    location /status {
        kv_router_status  main;
    }
_EOC_

log_level('info');
no_long_string();
no_shuffle();

plan tests => repeat_each() * blocks() * 5;

run_tests();

__DATA__

=== TEST 1: the status has its numbers
--- script
            local body = ask("GET", "/status").body

            ngx.say((body:match('"turn_cache":(%b{})')))
--- response_body_like
^\{"bytes":2097152,"slots":\d{4},"used":0,"hits":0,"misses":0,"tokens":0,"kept":0,"evicted":0,"lost":0,"torn":0,"too_large":0,"busy":0\}$



=== TEST 2: and so have the metrics
--- script
            local text = ask("GET", "/status?format=prometheus").body

            for line in text:gmatch("[^\n]+") do
                if line:find("^kv_router_turn_cache") then
                    ngx.say(line)
                end
            end
--- response_body
kv_router_turn_cache_texts_total{zone="main",found="yes"} 0
kv_router_turn_cache_texts_total{zone="main",found="no"} 0



=== TEST 3: a zone with a model has one of 16m, unless it is off
--- http_config
    kv_router_zone   zone=other:8m;
    kv_router_model  other $TEST_NGINX_MODEL engine=vllm;
    kv_router_zone   zone=none:8m;
    kv_router_model  none $TEST_NGINX_MODEL engine=vllm turns=off;
--- config
    location /other {
        kv_router_status  other;
    }

    location /none {
        kv_router_status  none;
    }
--- script
            for _, zone in ipairs { "other", "none" } do
                local body = ask("GET", "/" .. zone).body

                ngx.say(zone, ": ", body:match('"turn_cache":{"bytes":(%d+)'))
            end
--- response_body
other: 16777216
none: nil
