# What routers share: what the status and the metrics of one say.

use lib 't/lib';
use KVRouter;

scripts(http_config => <<'_EOC_', config => <<'_EOC_');
    kv_router_zone   zone=main:8m;
    kv_router_redis  main unix:/nowhere/redis.sock;
    kv_router_sync   main name=a key=0123456789abcdef;
    kv_router_zone   zone=off:8m;
    kv_router_redis  off unix:/nowhere/redis.sock;
    kv_router_sync   off off;
    kv_router_zone   zone=none:8m;
_EOC_
    location /kv/ {
        kv_router_api  main;
    }

    location = /status {
        kv_router_status  main;
    }

    location = /off {
        kv_router_status  off;
    }

    location = /none {
        kv_router_status  none;
    }
_EOC_

log_level('info');
no_long_string();
no_shuffle();

plan tests => repeat_each() * blocks() * 3;

run_tests();

__DATA__

=== TEST 1: nobody is heard, and the key is nowhere
--- script
            for _, zone in ipairs { "/status", "/off", "/none" } do
                local status = ask("GET", zone .. "?format=json").body

                ngx.say(zone, " ", status:match('"sync":(%b{})'), " ",
                        status:find("0123456789abcdef", 1, true))
            end
--- response_body
/status {"on":true,"routers":1,"messages":0,"refused":0,"dropped":0,"peers":[]} nil
/off {"on":false,"routers":1,"messages":0,"refused":0,"dropped":0,"peers":[]} nil
/none nil nil
--- no_error_log
0123456789abcdef



=== TEST 2: the same as metrics, of a zone with Redis
--- script
            for _, zone in ipairs { "/status", "/none" } do
                local metrics = ask("GET", zone .. "?format=prometheus").body

                for line in metrics:gmatch("[^\n]+") do
                    if line:find("^kv_router_peers")
                       or line:find("^kv_router_sync")
                    then
                        ngx.say(line)
                    end
                end
            end
--- response_body
kv_router_sync_lost_total{zone="main",why="refused"} 0
kv_router_sync_lost_total{zone="main",why="dropped"} 0
kv_router_peers{zone="main",state="fresh"} 0
kv_router_peers{zone="main",state="silent"} 0
kv_router_peers{zone="main",state="leaving"} 0
kv_router_peers_lag_seconds{zone="main"} 0.000000
--- no_error_log
0123456789abcdef
