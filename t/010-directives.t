# Directives: each mistake is refused at the start, in nginx's words.

use lib 't/lib';
use KVRouter;

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('config', "location = /t { return 200 ok; }")
        unless defined $block->config;

    # without a request: nginx must not start, and say why

    if (!defined $block->request) {
        chomp(my $message = $block->error_log);

        $block->set_value('must_die', '');
        $block->set_value('suppress_stderr', '');
        $block->set_value('error_log', qr/\[emerg\] .*\Q$message\E/);
    }
});

log_level('info');
no_shuffle();

plan tests => repeat_each() * 317;

run_tests();

__DATA__

=== TEST 1: all directives with all parameters
--- http_config
    kv_router_zone    zone=main:16m;
    kv_router_zone    block_size=64 max_workers=16 index=radix shards=1
                      frequency=1h30m served=llama/3.1-8b zone=other:8192k
                      eagle=on unknown_model=404 max_tokens=200000
                      max_body=16m stale=10s lease=1h;
    kv_router_worker  main a 127.0.0.1:8000;
    kv_router_worker  main b.c:d_e-F9 [::1]:8000 ranks=4 role=prefill
                      weight=0.5 model=llama max_active=100 lora=sql,chat
                      capacity=512k events=on;
    kv_router_worker  main c unix:/tmp/engine.sock role=decode engine=sglang;
    kv_router_worker  other a localhost:8000 role=both weight=1000;

    kv_router_engine  main "header=Authorization: Bearer 1" header=X-A:b
                      ssl_verify=off ssl_name=engine.test;
    kv_router_engine  other ssl_name=engine.test;
--- config
    location /kv/ {
        kv_router_api  main read_only;
        allow          127.0.0.1;
        deny           all;
    }

    location = /status {
        kv_router_status  other;
    }

    location = /t {
        content_by_lua_block {
            local client = require "client"

            for _, w in ipairs(client.stats().workers) do
                ngx.say(w.worker_id, " ", w.address, " ranks=", w.ranks,
                        " role=", w.role, " weight=", w.weight, " model=",
                        w.model, " max_active=", w.max_active, " lora=",
                        table.concat(w.lora, "+"), " engine=", w.engine, " ",
                        w.origin,
                        " load rows=", #w.load)
            end

            local answer = client.ask("GET", "/status").body

            ngx.say(answer:match('^{"zone":"other","model":"[^"]*",'
                                 .. '"block_size":%d+,"eagle":%a+,'
                                 .. '"max_workers":%d+'))
        }
    }
--- request
GET /t
--- response_body
a 127.0.0.1:8000 ranks=1 role=both weight=1 model= max_active=0 lora= engine=unknown static load rows=1
b.c:d_e-F9 [::1]:8000 ranks=4 role=prefill weight=0.5 model=llama max_active=100 lora=sql+chat engine=unknown static load rows=4
c unix:/tmp/engine.sock ranks=1 role=decode weight=1 model= max_active=0 lora= engine=sglang static load rows=1
{"zone":"other","model":"llama/3.1-8b","block_size":64,"eagle":true,"max_workers":16
--- no_error_log
[warn]
[error]
[alert]
[emerg]



=== TEST 2: no directive at all, and the variables are empty
--- config
    location = /t {
        return 200 "[$kv_router_worker|$kv_router_reason|$kv_router_time]\n";
    }
--- request
GET /t
--- response_body
[||]
--- no_error_log
[error]
[alert]
[emerg]



=== TEST 3: the status and the API of two zones, several times
--- http_config
    kv_router_zone  zone=one:8m;
    kv_router_zone  zone=two:8m;
--- config
    location = /s1 { kv_router_status one; }
    location = /s2 { kv_router_status one; }
    location /k1/  { kv_router_api one; }
    location /k2   { kv_router_api two; }
    location = /t {
        content_by_lua_block {
            local client = require "client"

            for _, path in ipairs { "/s1", "/s2", "/k1/stats", "/k2/stats" } do
                ngx.say(path, " ", client.ask("GET", path).body:sub(1, 13))
            end
        }
    }
--- request
GET /t
--- response_body
/s1 {"zone":"one"
/s2 {"zone":"one"
/k1/stats {"zone":"one"
/k2/stats {"zone":"two"
--- no_error_log
[error]
[alert]
[emerg]



=== TEST 4: a zone needs a name and a size
--- http_config
    kv_router_zone  block_size=16;
--- error_log
"kv_router_zone" must have "zone" parameter



=== TEST 5: a zone needs a size
--- http_config
    kv_router_zone  zone=main;
--- error_log
invalid zone size "zone=main"



=== TEST 6: a zone's size is a number
--- http_config
    kv_router_zone  zone=main:big;
--- error_log
invalid zone size "zone=main:big"



=== TEST 7: a zone's size has no unit that nginx doesn't know
--- http_config
    kv_router_zone  zone=main:1g;
--- error_log
invalid zone size "zone=main:1g", it must be a name and a size in "k" or "m", as in "zone=main:1024m"



=== TEST 8: a zone's name isn't empty
--- http_config
    kv_router_zone  zone=:8m;
--- error_log
invalid zone size "zone=:8m"



=== TEST 9: a zone has a smallest size
--- http_config
    kv_router_zone  zone=main:32k;
--- error_log
kv_router_zone "main": 32k is too small for max_workers=1, shards=1 and worker_processes=1: write zone=main:5m



=== TEST 10: what max_workers needs has to fit into the zone
--- http_config
    kv_router_zone  zone=main:8m max_workers=16384;
--- error_log
kv_router_zone "main": 8m is too small for max_workers=16384, shards=1 and worker_processes=1: write zone=main:120m, or max_workers=512 in



=== TEST 11: a zone is defined once
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_zone  zone=main:8m;
--- error_log
kv_router_zone "main" is already defined



=== TEST 12: another module's zone is not ours
--- http_config
    lua_shared_dict  main 8m;
    kv_router_zone   zone=main:8m;
--- error_log
the shared memory zone "main" is already declared for a different use



=== TEST 13: a block holds a token at least
--- http_config
    kv_router_zone  zone=main:8m block_size=0;
--- error_log
invalid parameter "block_size=0"



=== TEST 14: a block's size is a number
--- http_config
    kv_router_zone  zone=main:8m block_size=16x;
--- error_log
invalid parameter "block_size=16x"



=== TEST 15: a block's size is bounded
--- http_config
    kv_router_zone  zone=main:8m block_size=1000000;
--- error_log
invalid parameter "block_size=1000000", it must be a number from 1 to 1024



=== TEST 16: a zone has room for a worker at least
--- http_config
    kv_router_zone  zone=main:8m max_workers=0;
--- error_log
invalid parameter "max_workers=0"



=== TEST 17: the number of workers is bounded
--- http_config
    kv_router_zone  zone=main:8m max_workers=16385;
--- error_log
invalid parameter "max_workers=16385"



=== TEST 18: there are two indexes only
--- http_config
    kv_router_zone  zone=main:8m index=btree;
--- error_log
invalid parameter "index=btree", it must be "radix" or "positional"



=== TEST 19: there are 64 shards at most
--- http_config
    kv_router_zone  zone=main:8m shards=65;
--- error_log
invalid parameter "shards=65"



=== TEST 20: a parameter that nobody knows
--- http_config
    kv_router_zone  zone=main:8m colour=red;
--- error_log
invalid parameter "colour=red": the parameters are zone, block_size, index, served, eagle, max_workers, shards, frequency, max_active, max_prefill_tokens, queue, queue_mode, queue_quantum, predict, lease, ttl, max_tokens, max_body, stale, unknown_model



=== TEST 21: zones belong into http
--- http_config
    server { kv_router_zone  zone=main:8m; }
--- error_log
"kv_router_zone" directive is not allowed here



=== TEST 22: a worker of a zone that nobody knows
--- http_config
    kv_router_worker  main a 127.0.0.1:8000;
--- error_log
unknown kv_router_zone "main" in "kv_router_worker", it must be defined before



=== TEST 23: a zone's workers come after it
--- http_config
    kv_router_worker  main a 127.0.0.1:8000;
    kv_router_zone    zone=main:8m;
--- error_log
unknown kv_router_zone "main" in "kv_router_worker", it must be defined before



=== TEST 24: a worker's id has no other characters
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main a/b 127.0.0.1:8000;
--- error_log
invalid worker id "a/b", it must be 1..63 characters of [A-Za-z0-9._:-]



=== TEST 25: a worker's id is 63 characters at most
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx 127.0.0.1:8000;
--- error_log
invalid worker id "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"



=== TEST 26: a worker needs an address
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main a;
--- error_log
"kv_router_worker" directive is missing the worker's address



=== TEST 27: an address needs a port
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main a 127.0.0.1;
--- error_log
no port in address "127.0.0.1" of worker "a"



=== TEST 28: an address has no port beyond 65535
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main a 127.0.0.1:65536;
--- error_log
invalid port in worker "127.0.0.1:65536"



=== TEST 29: an address's name has to be known
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main a no-such-host.invalid:80;
--- error_log
host not found in worker "no-such-host.invalid:80"



=== TEST 30: an address has no scheme
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main a http://127.0.0.1:8000;
--- error_log
invalid address "http://127.0.0.1:8000" of worker "a": an address has no scheme, as all workers of a zone have the scheme of "proxy_pass": write "host:port" alone



=== TEST 31: an address has no path
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main a 127.0.0.1:8000/v1;
--- error_log
invalid address "127.0.0.1:8000/v1" of worker "a": an address has no path: write "host:port" alone



=== TEST 32: a worker is named once in a zone
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main a 127.0.0.1:8000;
    kv_router_worker  main a 127.0.0.1:8001;
--- error_log
duplicate worker "a"



=== TEST 33: there are max_workers workers at most
--- http_config
    kv_router_zone    zone=main:8m max_workers=1;
    kv_router_worker  main a 127.0.0.1:8000;
    kv_router_worker  main b 127.0.0.1:8001;
--- error_log
too many workers, the zone "main" has max_workers=1



=== TEST 34: a worker's parameter weight=0
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main a 127.0.0.1:8000 weight=0;
--- error_log
invalid parameter "weight=0"



=== TEST 35: a worker's parameter weight=-1
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main a 127.0.0.1:8000 weight=-1;
--- error_log
invalid parameter "weight=-1"



=== TEST 36: a worker's parameter weight=heavy
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main a 127.0.0.1:8000 weight=heavy;
--- error_log
invalid parameter "weight=heavy", it must be a number from 0.001 to 1000



=== TEST 37: a worker's parameter ranks=0
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main a 127.0.0.1:8000 ranks=0;
--- error_log
invalid parameter "ranks=0"



=== TEST 38: a worker's parameter ranks=1025
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main a 127.0.0.1:8000 ranks=1025;
--- error_log
invalid parameter "ranks=1025"



=== TEST 39: a worker's parameter role=worker
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main a 127.0.0.1:8000 role=worker;
--- error_log
invalid parameter "role=worker", it must be "both", "prefill" or "decode"



=== TEST 40: a worker's parameter max_active=-1
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main a 127.0.0.1:8000 max_active=-1;
--- error_log
invalid parameter "max_active=-1"



=== TEST 41: a worker's parameter lora, of what no name is
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main a 127.0.0.1:8000 lora=a,é;
--- error_log
invalid parameter "lora=a,é", it has a character that no name of an adapter has



=== TEST 42: a worker's parameter backup
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main a 127.0.0.1:8000 backup;
--- error_log
invalid parameter "backup"



=== TEST 42a: a worker's parameter engine=mlc
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main a 127.0.0.1:8000 engine=mlc;
--- error_log
invalid parameter "engine=mlc", it must be "vllm", "sglang" or "trtllm"



=== TEST 43: Redis for a zone that nobody knows
--- http_config
    kv_router_redis  main redis://127.0.0.1;
--- error_log
unknown kv_router_zone "main" in "kv_router_redis", it must be defined before



=== TEST 44: a URL of Redis has a scheme
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main 127.0.0.1:6379;
--- error_log
invalid parameter "127.0.0.1:6379": the parameters are URLs (redis://host:port, rediss://host:port, redis-sentinel://host:port/MASTER, unix:/path), channel, replay, ssl_verify



=== TEST 45: a URL of Redis has a host
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main redis://;
--- error_log
invalid parameter "redis://", the URL has no host



=== TEST 46: the port of Redis is a port
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main redis://127.0.0.1:99999;
--- error_log
invalid parameter "redis://127.0.0.1:99999", the URL has a wrong port: it must be 1..65535



=== TEST 47: the database of Redis is a number
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main redis://127.0.0.1/zero;
--- error_log
invalid parameter "redis://127.0.0.1/zero", the URL has a wrong db: it must be 0..2147483647



=== TEST 48: passwords are not shown with TLS
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main rediss://me:secret@127.0.0.1:99999;
--- error_log
invalid parameter "rediss://me:***@127.0.0.1:99999", the URL has a wrong port: it must be 1..65535



=== TEST 49: passwords are not shown
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main redis://me:secret@127.0.0.1:99999;
--- error_log
invalid parameter "redis://me:***@127.0.0.1:99999", the URL has a wrong port: it must be 1..65535



=== TEST 50: passwords are not shown when the scheme is forgotten
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main me:secret@127.0.0.1;
--- error_log
invalid parameter "me:***@127.0.0.1"



=== TEST 51: lone passwords are not shown
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main redis://secret@127.0.0.1/x;
--- error_log
invalid parameter "redis://***@127.0.0.1/x"



=== TEST 52: Redis needs a URL
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main replay=on;
--- error_log
no URL of Redis in "kv_router_redis" directive



=== TEST 53: a channel is a prefix and a star
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main redis://127.0.0.1 channel=kv-*-events;
--- error_log
invalid parameter "channel=kv-*-events", it must be the channel of one worker, or a prefix and "*"



=== TEST 54: replay is on or off
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main redis://127.0.0.1 replay=yes;
--- error_log
invalid parameter "replay=yes"



=== TEST 55: a zone has one kv_router_redis
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main redis://127.0.0.1;
    kv_router_redis  main redis://127.0.0.1:6380;
--- error_log
"kv_router_redis" directive is duplicate



=== TEST 56: the bound of a batch of events is gone
--- http_config
    kv_router_event_batch  512;
--- error_log
"kv_router_event_batch" directive was removed, a turn ends by its time: remove the line in



=== TEST 57: a prompt is bounded
--- http_config
    kv_router_zone  zone=main:8m max_tokens=1048577;
--- error_log
invalid parameter "max_tokens=1048577", it must be a number from 1 to 1048576



=== TEST 58: a time has a unit
--- http_config
    kv_router_zone  zone=main:8m stale=5x;
--- error_log
invalid parameter "stale=5x", it must be a time from 0 to 1d



=== TEST 59: the limits are parameters of the zone
--- http_config
    kv_router_max_tokens  10;
--- error_log
"kv_router_max_tokens" directive is now the parameter "max_tokens=" of "kv_router_zone" in



=== TEST 60: the status of a zone that nobody knows
--- http_config
    kv_router_zone  zone=main:8m;
--- config
    location = /status { kv_router_status other; }
--- error_log
unknown kv_router_zone "other" in "kv_router_status", it must be defined before



=== TEST 61: the API of a zone that nobody knows
--- http_config
    kv_router_zone  zone=main:8m;
--- config
    location /kv/ { kv_router_api other; }
--- error_log
unknown kv_router_zone "other" in "kv_router_api", it must be defined before



=== TEST 62: a location has one API
--- http_config
    kv_router_zone  zone=main:8m;
--- config
    location /kv/ { kv_router_api main; kv_router_api main; }
--- error_log
"kv_router_api" directive is duplicate



=== TEST 63: a location is the API or the status
--- http_config
    kv_router_zone  zone=main:8m;
--- config
    location /kv/ { kv_router_api main; kv_router_status main; }
--- error_log
"kv_router_status" directive conflicts with another handler of this location



=== TEST 64: the API belongs into a location
--- http_config
    kv_router_zone  zone=main:8m;
--- config
    kv_router_api main;
--- error_log
"kv_router_api" directive is not allowed here



=== TEST 65: a window of frequencies is a time
--- http_config
    kv_router_zone  zone=main:8m frequency=often;
--- error_log
invalid parameter "frequency=often", it must be a time from 1s to 1d



=== TEST 66: a window of frequencies is no shorter than a second
--- http_config
    kv_router_zone  zone=main:8m frequency=999ms;
--- error_log
invalid parameter "frequency=999ms", it must be a time from 1s to 1d



=== TEST 67: a window of frequencies is no longer than a day
--- http_config
    kv_router_zone  zone=main:8m frequency=86401s;
--- error_log
invalid parameter "frequency=86401s", it must be a time from 1s to 1d



=== TEST 68: there are no frequencies without the parameter alone
--- http_config
    kv_router_zone  zone=main:8m frequency=0;
--- error_log
invalid parameter "frequency=0", it must be a time from 1s to 1d



=== TEST 69: a socket has a path
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main unix:relative;
--- error_log
invalid parameter "unix:relative"



=== TEST 70: a socket has a path, also behind slashes
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main unix://relative;
--- error_log
invalid parameter "unix://relative"



=== TEST 71: passwords of sockets are not shown
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main unix://me:secret@relative;
--- error_log
invalid parameter "unix://me:***@relative"



=== TEST 72: a socket's database is a number
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main unix:/tmp/redis.sock?db=x;
--- error_log
invalid parameter "unix:/tmp/redis.sock?db=x"



=== TEST 73: a socket's database isn't empty
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main unix:/tmp/redis.sock?db=;
--- error_log
invalid parameter "unix:/tmp/redis.sock?db="



=== TEST 74: a socket's password has its place, and is not shown
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main unix:/tmp/redis.sock?db=1&password=secret;
--- error_log
invalid parameter "unix:/tmp/redis.sock?db=1&password="



=== TEST 75: a database is all that comes behind a host
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main redis://127.0.0.1/1/2;
--- error_log
invalid parameter "redis://127.0.0.1/1/2"



=== TEST 76: a database is not negative
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main redis://127.0.0.1/-1;
--- error_log
invalid parameter "redis://127.0.0.1/-1"



=== TEST 77: what is behind a percent sign is hexadecimal
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main redis://me:a%zz@127.0.0.1;
--- error_log
invalid parameter "redis://me:***@127.0.0.1"



=== TEST 78: a percent sign is not the last
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main redis://me:a%2@127.0.0.1;
--- error_log
invalid parameter "redis://me:***@127.0.0.1"



=== TEST 79: a user has a password
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main redis://me:@127.0.0.1;
--- error_log
invalid parameter "redis://me:***@127.0.0.1"



=== TEST 80: an IPv6 address has brackets
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main redis://[::1:6379;
--- error_log
invalid parameter "redis://[::1:6379", the URL has a wrong host



=== TEST 81: Redis's name has to be known
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main redis://no-such-host.invalid;
--- error_log
host not found in "redis://no-such-host.invalid"



=== TEST 82: ssl_verify is on or off
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main rediss://127.0.0.1 ssl_verify=maybe;
--- error_log
invalid parameter "ssl_verify=maybe"



=== TEST 83: ssl_name isn't empty
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main rediss://127.0.0.1 ssl_name=;
--- error_log
invalid parameter "ssl_name=", it must be a text that is not empty



=== TEST 84: ssl parameters are these five
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main rediss://127.0.0.1 ssl_ciphers=ALL;
--- error_log
invalid parameter "ssl_ciphers=ALL"



=== TEST 85: trusted certificates have to be there
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main rediss://127.0.0.1 ssl_trusted_certificate=/nowhere/ca.pem;
--- error_log
SSL_CTX_load_verify_locations("/nowhere/ca.pem") failed



=== TEST 86: verification needs TLS
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main redis://127.0.0.1 ssl_verify=off;
--- error_log
"ssl_verify=off" is of no use without a "rediss://" URL



=== TEST 87: all ways to name a Redis
--- http_config
    kv_router_zone  zone=a:8m;
    kv_router_zone  zone=b:8m;
    kv_router_redis  a redis://127.0.0.1:1 redis://[::1]:1/15
                     REDIS://me:%61%40@localhost:1/0 redis://word@127.0.0.1:1
                     unix:/nowhere/redis.sock unix:/nowhere/redis.sock?db=3
                     unix://me:secret@/nowhere/redis.sock?db=0
                     unix:///nowhere/redis.sock channel=kv-events:a-*;
    kv_router_redis  b rediss://me:word@127.0.0.1:1/2 ssl_verify=off
                     ssl_name=redis.example replay=off channel=kv-events:w1;
--- request
GET /t
--- response_body: ok
--- no_error_log
secret
word
[alert]
[emerg]



=== TEST 88: kv_router_health with max_fails=-1
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_health  main max_fails=-1;
--- error_log
invalid parameter "max_fails=-1"



=== TEST 89: kv_router_health with max_fails=1001
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_health  main max_fails=1001;
--- error_log
invalid parameter "max_fails=1001"



=== TEST 90: kv_router_health with fail_timeout=0
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_health  main fail_timeout=0;
--- error_log
invalid parameter "fail_timeout=0", it must be a time from 1ms to 1h



=== TEST 91: kv_router_health with fail_timeout=2h
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_health  main fail_timeout=2h;
--- error_log
invalid parameter "fail_timeout=2h"



=== TEST 92: kv_router_health with slow_start=x
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_health  main slow_start=x;
--- error_log
invalid parameter "slow_start=x", it must be a time from 0 to 1h



=== TEST 93: kv_router_health with check=health
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_health  main check=health;
--- error_log
invalid parameter "check=health", it must be a URI that begins with "/" and has no blanks



=== TEST 94: kv_router_health with interval=50ms
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_health  main interval=50ms;
--- error_log
invalid parameter "interval=50ms"



=== TEST 95: kv_router_health with timeout=0
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_health  main timeout=0;
--- error_log
invalid parameter "timeout=0"



=== TEST 96: kv_router_health with passes=0
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_health  main passes=0;
--- error_log
invalid parameter "passes=0"



=== TEST 97: kv_router_health with fails=1001
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_health  main fails=1001;
--- error_log
invalid parameter "fails=1001"



=== TEST 98: kv_router_health with rises=1
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_health  main rises=1;
--- error_log
invalid parameter "rises=1"



=== TEST 99: one kv_router_health for a zone
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_health  main;
    kv_router_health  main;
--- error_log
"kv_router_health" directive is duplicate



=== TEST 100: a worker's own fail_timeout is checked as well
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_worker  main a 127.0.0.1:8000 fail_timeout=2h;
--- error_log
invalid parameter "fail_timeout=2h"



=== TEST 101: the settings of health, and those of a worker
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_health  main max_fails=5 fail_timeout=1500ms slow_start=1m
                      check=/health?x=1 interval=1h timeout=1s passes=2 fails=1;
    kv_router_worker  main a 127.0.0.1:8000;
    kv_router_worker  main b 127.0.0.1:8001 max_fails=0 fail_timeout=1h
                      slow_start=0;
--- config
    location /kv/ {
        kv_router_api  main;
    }

    location = /t {
        content_by_lua_block {
            local text = ngx.location.capture("/kv/workers").body

            for one in text:gmatch('"max_fails":[^}]-"slow_start":[%d.]+') do
                ngx.say(one)
            end
        }
    }
--- request
GET /t
--- response_body
"max_fails":5,"fail_timeout":1.5,"slow_start":60
"max_fails":0,"fail_timeout":3600,"slow_start":0
--- no_error_log
[alert]
[emerg]



=== TEST 102: parameters of scrape are these three
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_scrape  main path=/metrics;
--- error_log
invalid parameter "path=/metrics": the parameters are uri, interval, timeout



=== TEST 103: a URI begins with a slash
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_scrape  main uri=metrics;
--- error_log
invalid parameter "uri=metrics"



=== TEST 104: a URI is one line
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_scrape  main "uri=/metrics HTTP/1.0";
--- error_log
invalid parameter "uri=/metrics HTTP/1.0"



=== TEST 105: engines aren't asked all the time
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_scrape  main interval=10ms;
--- error_log
invalid parameter "interval=10ms"



=== TEST 106: a timeout is a time
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_scrape  main timeout=soon;
--- error_log
invalid parameter "timeout=soon"



=== TEST 107: a zone is scraped in one way
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_scrape  main;
    kv_router_scrape  main interval=2s;
--- error_log
"kv_router_scrape" directive is duplicate



=== TEST 108: scrape is of a zone
--- http_config
    kv_router_scrape  main;
--- error_log
unknown kv_router_zone "main" in "kv_router_scrape"



=== TEST 109: eagle is on or off
--- http_config
    kv_router_zone  zone=main:8m eagle=yes;
--- error_log
invalid parameter "eagle=yes", it must be "on" or "off"



=== TEST 110: a certificate of nginx's own has a key
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main rediss://127.0.0.1 ssl_certificate=own.pem;
--- error_log
needs both of "ssl_certificate" and "ssl_certificate_key", or none



=== TEST 111: such certificates have to be there
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_redis  main rediss://127.0.0.1 ssl_verify=off
                     ssl_certificate=/nowhere/own.pem
                     ssl_certificate_key=/nowhere/own.key;
--- error_log
cannot load certificate "/nowhere/own.pem"



=== TEST 112: a body to be scanned is bounded
--- http_config
    kv_router_zone  zone=main:8m max_body=1025m;
--- error_log
invalid parameter "max_body=1025m"



=== TEST 113: a prefix cache has a zone
--- http_config
    kv_router_prefix_cache  page_size=4;
--- error_log
"kv_router_prefix_cache" must have "zone" parameter



=== TEST 114: its zone has a size
--- http_config
    kv_router_prefix_cache  zone=cache;
--- error_log
invalid zone size "zone=cache"



=== TEST 115: which is enough
--- http_config
    kv_router_prefix_cache  zone=cache:1m;
--- error_log
zone "cache" is too small, it must have 2m at least



=== TEST 116: its pages have a bound
--- http_config
    kv_router_prefix_cache  zone=cache:2m page_size=513;
--- error_log
invalid parameter "page_size=513", it must be a number from 1 to 512



=== TEST 117: its keys are of these three
--- http_config
    kv_router_prefix_cache  zone=cache:2m key=text;
--- error_log
invalid parameter "key=text", it must be "tokens", "hashes" or "bytes"



=== TEST 118: it evicts by one of these
--- http_config
    kv_router_prefix_cache  zone=cache:2m evict=random;
--- error_log
invalid parameter "evict=random", it must be "lru", "lfu", "fifo", "mru" or "priority"



=== TEST 119: a name has one prefix cache
--- http_config
    kv_router_prefix_cache  zone=cache:2m;
    kv_router_prefix_cache  zone=cache:2m;
--- error_log
kv_router_prefix_cache "cache" is already defined



=== TEST 120: and no index has it
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_prefix_cache  zone=main:8m;
--- error_log
the shared memory zone "main" is already declared for a different use



=== TEST 121: a header for engines has a name
--- http_config
    kv_router_zone    zone=main:16m;
    kv_router_engine  main "header=X A: secret";
--- error_log
invalid name "X A" of a header for engines, it must be letters, digits and "-", and none of the headers that the router sets itself
--- no_error_log
secret



=== TEST 122: which is none of the router's own
--- http_config
    kv_router_zone    zone=main:16m;
    kv_router_engine  main "header=content-length: 5";
--- error_log
invalid name "content-length" of a header for engines



=== TEST 123: its value begins no other header, and is not told
--- http_config
    kv_router_zone    zone=main:16m;
    kv_router_engine  main "header=X-A: secret\nX-B: 1";
--- error_log
invalid value of the header "X-A" for engines, it must have no control characters
--- no_error_log
secret



=== TEST 124: headers for engines have a bound
--- http_config eval
"    kv_router_zone    zone=main:16m;\n"
. "    kv_router_engine  main header=X-A:" . "a" x 3000
. " header=X-B:" . "b" x 3000 . ";\n"
--- error_log
too long headers for the engines of zone "main", all of them must have 4096 bytes at most



=== TEST 125: TLS to engines needs their name
--- http_config
    kv_router_zone    zone=main:16m;
    kv_router_engine  main ssl_verify=on;
--- error_log
"kv_router_engine" directive needs "ssl_name", the name in the engines' certificates, or "ssl_verify=off"



=== TEST 126: it is configured once
--- http_config
    kv_router_zone    zone=main:16m;
    kv_router_engine  main ssl_verify=off;
    kv_router_engine  main ssl_verify=off;
--- error_log
"kv_router_engine" directive is duplicate



=== TEST 127: with parameters that there are
--- http_config
    kv_router_zone    zone=main:16m;
    kv_router_engine  main ssl_certificate=a;
--- error_log
invalid parameter "ssl_certificate=a": the parameters are header, ssl_verify, ssl_trusted_certificate, ssl_name



=== TEST 128: its file of authorities is read at start
--- http_config
    kv_router_zone    zone=main:16m;
    kv_router_engine  main ssl_name=a ssl_trusted_certificate=nowhere.pem;
--- error_log
nowhere.pem



=== TEST 129: a turn cache is a parameter of the model
--- http_config
    kv_router_turn_cache  zone=turns:4m;
--- error_log
"kv_router_turn_cache" directive is now the parameter "turns=SIZE" of "kv_router_model", by default 16m: remove the line in



=== TEST 130: of a size
--- http_config
    kv_router_zone   zone=main:8m;
    kv_router_model  main model turns=on;
--- error_log
invalid parameter "turns=on", it must be "off", or a size of 1m at least in



=== TEST 131: which is enough
--- http_config
    kv_router_zone   zone=main:8m;
    kv_router_model  main model turns=512k;
--- error_log
invalid parameter "turns=512k", it must be "off", or a size of 1m at least in



=== TEST 132: a worker has room for a token at least
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main a 127.0.0.1:8000 capacity=0;
--- error_log
invalid parameter "capacity=0", it must be a number, or one of "k" or "m", from 1 to 1000000000



=== TEST 133: and counts in nothing larger than "m"
--- http_config
    kv_router_zone    zone=main:8m;
    kv_router_worker  main a 127.0.0.1:8000 capacity=1g;
--- error_log
invalid parameter "capacity=1g", it must be a number, or one of "k" or "m", from 1 to 1000000000



=== TEST 134: a model that no worker serves goes to any or has the answer 404
--- http_config
    kv_router_zone  zone=main:8m unknown_model=500;
--- error_log
invalid parameter "unknown_model=500", it must be "any" or "404"



=== TEST 135: the model that a zone's engines serve has a word of its own
--- http_config
    kv_router_zone  zone=main:8m model=llama;
--- error_log
invalid parameter "model=llama", it is now "served=" in



=== TEST 136: what routers share has four settings
--- http_config
    kv_router_zone   zone=main:8m;
    kv_router_redis  main redis://127.0.0.1:1;
    kv_router_sync   main name=eu-1 timeout=2s
                     key=0123456789abcdef bounds=own;
--- request
GET /t
--- response_body: ok



=== TEST 137: or is off
--- http_config
    kv_router_zone   zone=main:8m;
    kv_router_redis  main redis://127.0.0.1:1;
    kv_router_sync   main off;
--- request
GET /t
--- response_body: ok



=== TEST 138: a zone has one kv_router_sync
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_sync  main off;
    kv_router_sync  main name=a;
--- error_log
"kv_router_sync" directive is duplicate



=== TEST 139: which is on by itself
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_sync  main on;
--- error_log
invalid parameter "on": the parameters are off, name, timeout, key, bounds in



=== TEST 140: a router's name can be shown
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_sync  main "name=a	b";
--- error_log
it must be 1..63 printable ASCII characters in



=== TEST 141: and is not empty
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_sync  main name=;
--- error_log
invalid parameter "name=", it must be 1..63 printable ASCII characters in



=== TEST 142: a short key is found by trying, and no message shows it
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_sync  main key=secret;
--- error_log
invalid parameter "key=", it must have 16 characters or more in



=== TEST 143: not even where its name is wrong
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_sync  main keys=0123456789abcdef;
--- error_log
invalid parameter "keys=": the parameters are off, name,



=== TEST 144: an idle peer speaks each second
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_sync  main timeout=1s;
--- error_log
invalid parameter "timeout=1s", it must be a time from 2s to 1m in



=== TEST 145: bounds are shared or own
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_sync  main bounds=half;
--- error_log
invalid parameter "bounds=half", it must be "shared" or "own" in



=== TEST 146: without Redis there is nowhere to meet
--- http_config
    kv_router_zone  zone=main:8m;
    kv_router_sync  main name=a;
--- request
GET /t
--- response_body: ok
--- error_log
"kv_router_sync" of the zone "main" does nothing without "kv_router_redis": routers meet in Redis



=== TEST 147: a worker's parameter max_prefill_tokens=all
--- http_config
    kv_router_zone    zone=main:8m max_prefill_tokens=auto;
    kv_router_worker  main a 127.0.0.1:8000 max_prefill_tokens=all;
--- error_log
invalid parameter "max_prefill_tokens=all", it must be "auto", or a number from 0 to 1000000000



=== TEST 148: a lease that is too short
--- http_config
    kv_router_zone  zone=main:8m lease=500ms;
--- error_log
invalid parameter "lease=500ms"
