package KVRouter;

# What our Test::Nginx suites share.  A suite starts with
#
#     use lib 't/lib';
#     use KVRouter;
#
# and has then all of Test::Nginx::Socket::Lua, run with the environment of
# t/lib/env, and the functions below.  A missing program or module ends the
# suite at once, with a sentence that says which.
#
# lua/ and t/lib/ are in the lua_package_path of every block, before its own
# http_config, unless that has a lua_package_path itself.  $TEST_NGINX_HTML_DIR
# is where the --- user_files of a block are.
#
# Whatever these functions start is gone when the suite is, however it ends.

use strict;
use warnings;

use Cwd qw( abs_path );
use File::Basename qw( dirname );
use File::Path qw( make_path );
use File::Temp qw( tempdir );
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use POSIX qw( :sys_wait_h );
use Time::HiRes qw( time sleep );


use constant READY => 60;        # seconds that a server may take to come up
use constant GRACE => 5;         # seconds between a signal and SIGKILL
use constant REPLY => 60;        # seconds that Redis may take to answer
use constant PYTHON => '/usr/bin/python3';


our @EXPORT = qw( engines free_port redis_cmd scripts start_engine start_redis
                  stop zone_workers );

our $Root = abs_path(dirname(__FILE__) . '/../..');

my $owner = $$;                  # forked children must not clean up
my %started;                     # pid => what it is
my @outputs;                     # of engines
my @claims;                      # sockets, open until this process ends
my $redis;                       # the port of the latest one
my $tmp;


# Takes the variables from t/lib/env, as a shell sees them.

sub read_environment {
    local $ENV{KVR_ROOT} = $ENV{KVR_ROOT} // $Root;

    open(my $env, '-|', 'sh', '-c', 'cd "$KVR_ROOT" && . t/lib/env && env -0')
        or die "can't run sh: $!\n";

    my @set = do { local $/ = "\0"; <$env> };

    close($env) or die "can't read $Root/t/lib/env\n";

    for (@set) {
        chomp(my $line = $_);
        $line =~ s/\0\z//;

        $ENV{$1} = $2 if $line =~ /^((?:KVR|TEST_NGINX)_\w+)=(.*)\z/s;
    }

    $ENV{KVR_ROOT} = $Root;

    # a port for nginx, and the one above it for a stream server

    $ENV{TEST_NGINX_PORT} //= free_port(1);

    # by port, so that suites can run beside each other; kept after a failure

    $ENV{TEST_NGINX_SERVROOT}
        //= "$ENV{KVR_BUILD}/servroot-$ENV{TEST_NGINX_PORT}";
}


sub check_environment {
    my $nginx = $ENV{TEST_NGINX_BINARY};

    die "$nginx is not there (TEST_NGINX_BINARY): run util/deps check\n"
        unless -x $nginx;

    for my $module (split ' ', $ENV{TEST_NGINX_LOAD_MODULES}) {
        next if -e $module;

        die "$module is not there (TEST_NGINX_LOAD_MODULES): run ",
            $module =~ /kv_router/ ? 'make' : 'util/deps check', "\n";
    }

    eval { require Test::Base; 1 }
        && grep { -e "$_/Test/Nginx/Socket/Lua.pm" } grep { !ref } @INC
        or die "Test::Nginx is not there: run util/deps check\n";
}


sub import {
    my ($class, @args) = @_;

    my $caller = caller;

    # Test::Nginx reads its variables when it is loaded

    read_environment();
    check_environment();

    make_path(dirname($ENV{TEST_NGINX_SERVROOT}));

    strict->import;
    warnings->import;

    # in the caller's package, as if it were written there

    eval "package $caller; use Test::Nginx::Socket::Lua \@args; 1"
        or die $@;

    $ENV{TEST_NGINX_HTML_DIR} = Test::Nginx::Util::html_dir();

    no strict 'refs';
    *{"${caller}::$_"} = \&{$_} for @EXPORT;

    # $TEST_NGINX_RAND_PORT_1 and so on: its own may be ports of connections

    no warnings 'redefine';
    *Test::Nginx::Util::gen_rand_port = sub (;$$$) { free_port() };

    # the first added runs last: the suite's own defaults are set by then

    Test::Nginx::Util::add_block_preprocessor(sub { add_lua_path(shift) });
}


sub add_lua_path {
    my ($block) = @_;

    my $config = $block->http_config // '';

    if ($config !~ /^\s*lua_package_path\b/m) {
        $config = qq{    lua_package_path "$Root/lua/?.lua;}
                  . qq{$Root/t/lib/?.lua;;";\n$config};
        $block->set_value('http_config', $config);
    }
}


# After scripts(http_config => ..., config => ...) a block may have a section
# --- script: Lua that GET /t runs, with the functions of t/lib/client.lua at
# hand.  What it says is the response.  The configuration given goes before the
# block's own; nothing above a warning may be logged, unless the block says
# what.

sub scripts {
    my (%common) = @_;

    Test::Nginx::Util::add_block_preprocessor(sub {
        my ($block) = @_;

        for my $name (qw( http_config config )) {
            my $text = ($common{$name} // '') . ($block->$name // '');

            # more parameters of the zone
            $text =~ s/(zone=main:\w+)/$1 @{[ $block->zone_params ]}/
                if defined $block->zone_params;

            $block->set_value($name, $text);
        }

        $block->set_value('no_error_log', "[error]\n[alert]\n[emerg]")
            unless defined $block->no_error_log;

        add_script($block) if defined $block->script;
    });
}


sub add_script {
    my ($block) = @_;

    my $script = $block->script;

    $block->set_value('request', 'GET /t');
    $block->set_value('config', $block->config . <<"_EOC_");
    location = /t {
        content_by_lua_block {
            local client = require "client"
            local ask, show, tell = client.ask, client.show, client.tell
            local event, stored = client.event, client.stored
            local removed = client.removed

$script
        }
    }
_EOC_
}


# For http_config: N engines, servers of the same nginx, and the upstream that
# a router balances over them.  Engine I listens on $TEST_NGINX_RAND_PORT_I and
# answers "wI"; /slow stays open after that, /reset has no answer.  engine =>
# more locations of each, NUMBER being its number; upstream => more directives.

sub engines {
    my ($n, %more) = @_;

    $more{$_} //= '' for qw( engine upstream );

    return <<"_EOC_" . join('', map { engine($_, $more{engine}) } 1 .. $n);
    upstream engines {
        server     0.0.0.1;
        balancer_by_lua_block { router:balance() }
$more{upstream}    }

_EOC_
}


sub engine {
    my ($number, $more) = @_;

    $more =~ s/NUMBER/$number/g;

    return <<"_EOC_";
    server {
        listen 127.0.0.1:\$TEST_NGINX_RAND_PORT_$number;

        location / {
            return  200 "w$number\\n";
        }

        location /slow {
            content_by_lua_block {
                ngx.say("w$number")
                ngx.flush(true)
                ngx.sleep(60)
            }
        }

        location /reset {
            return  444;
        }

$more    }

_EOC_
}


# The first N of these engines as workers of the zone "main".

sub zone_workers {
    my ($n) = @_;

    return join('', map { <<"_EOC_" } 1 .. $n);
    kv_router_worker  main w$_ 127.0.0.1:\$TEST_NGINX_RAND_PORT_$_ events=on;
_EOC_
}


# A TCP port of the loopback address that is free and stays so; so are the ports
# that are the arguments behind it.  The kernel gives no client a port of this
# range.  A port is claimed for as long as this process lives, in the same way as
# the system tests claim theirs: see free_port() in demo/processes.py.

sub free_port {
    my (@offsets) = @_;

    for (1 .. 1000) {
        my $port = 10240 + int rand 21760;
        my @claimed = map { claim($port + $_) } 0, @offsets;

        next if @claimed != 1 + @offsets;

        push @claims, @claimed;
        return $port;
    }

    die "no port of 127.0.0.1 is free\n";
}


# The socket that claims a port, or nothing when the port is not free.

sub claim {
    my ($port) = @_;

    my $claim = IO::Socket::UNIX->new(Local => "\0kv-router-port-$port",
                                      Listen => 1)
        or return;

    return IO::Socket::INET->new(LocalAddr => '0.0.0.0', LocalPort => $port,
                                 Listen => 1, ReuseAddr => 1)
           ? $claim : ();
}


# Starts a redis-server that keeps nothing on disk.  With port => PORT it
# listens there, as after a restart.  Answers the port, in list context the
# port, the path of the unix socket and the pid.  $TEST_NGINX_REDIS_PORT and
# $TEST_NGINX_REDIS_SOCKET in a block are those of the latest one.

sub start_redis {
    my (%opts) = @_;

    my $port = $opts{port} // free_port();
    my $socket = temporary_directory() . "/redis-$port.sock";
    my $log = temporary_directory() . "/redis-$port.log";

    my ($pid) = spawn("redis on port $port",
                      'redis-server', '--bind', '127.0.0.1', '--port', $port,
                      '--unixsocket', $socket, '--save', '',
                      '--appendonly', 'no', '--daemonize', 'no',
                      '--dir', temporary_directory(), '--logfile', $log);

    for (my $end = time() + READY;; sleep(0.02)) {
        last if eval { redis_cmd({ port => $port }, 'PING') eq 'PONG' }
                && -S $socket;

        if (waitpid($pid, WNOHANG) == $pid || time() > $end) {
            die "redis-server didn't start on port $port:\n", slurp($log);
        }
    }

    $redis = $port;
    $ENV{TEST_NGINX_REDIS_PORT} = $port;
    $ENV{TEST_NGINX_REDIS_SOCKET} = $socket;

    return wantarray ? ($port, $socket, $pid) : $port;
}


# redis_cmd('PUBLISH', $channel, $bytes) sends one command to the latest
# Redis, redis_cmd({ port => PORT }, ...) to another.  Answers a string, a
# number, undef or a reference to an array of these; dies of an error.

sub redis_cmd {
    my $where = ref $_[0] ? shift : {};
    my @args = @_;

    my $port = $where->{port} // $redis // die "redis_cmd: no Redis started\n";

    my $peer = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                     PeerPort => $port, Timeout => REPLY)
        or die "redis_cmd: can't connect to port $port: $@\n";

    utf8::encode($_) for grep { utf8::is_utf8($_) } @args;

    my $command = join('', '*' . @args . "\r\n",
                       map { '$' . length($_) . "\r\n$_\r\n" } @args);

    local $SIG{ALRM} = sub { die "redis_cmd: no reply to $args[0]\n" };
    alarm(REPLY);

    print {$peer} $command;
    $peer->flush;
    my $reply = eval { read_reply($peer) };
    my $error = $@;

    alarm(0);
    die $error if $error;

    return $reply;
}


sub read_reply {
    my ($peer) = @_;

    my $line = <$peer> // die "redis_cmd: the connection was closed\n";
    $line =~ s/\r\n\z//;

    my ($type, $value) = (substr($line, 0, 1), substr($line, 1));

    die "redis_cmd: $value\n" if $type eq '-';

    return $value if $type eq '+' || $type eq ':';

    return undef if $value < 0;

    return [ map { read_reply($peer) } 1 .. $value ] if $type eq '*';

    read($peer, my $bytes, $value + 2) == $value + 2
        or die "redis_cmd: the connection was closed\n";

    return substr($bytes, 0, $value);
}


# Starts a simulated engine, demo/engine.py, whose options are the keys:
# start_engine(block_size => 16, blocks => 1000).  An undefined value makes an
# option without one.  Answers (pid, port); the port is a free one.

sub start_engine {
    my (%opts) = @_;

    my @args;

    for my $name (sort keys %opts) {
        (my $option = "--$name") =~ tr/_/-/;
        push @args, $option, grep { defined } $opts{$name};
    }

    my $name = 'engine';
    my ($pid, $out) = spawn($name, PYTHON, '-B', "$Root/demo/engine.py",
                            @args);

    my $said = '';
    my $streams = IO::Select->new($out);

    for (my $end = time() + READY; time() < $end;) {
        next unless $streams->can_read(0.1);

        sysread($out, $said, 4096, length $said) or last;

        if ($said =~ /^ready on 127\.0\.0\.1:(\d+)\n/m) {

            # whoever writes to a closed pipe is killed

            push @outputs, $out;

            return ($pid, $1);
        }
    }

    stop($pid);
    die "$name didn't start: $said\n", slurp(log_file($name));
}


# Ends a process that one of these functions started, by SIGTERM or the
# signal given, and waits for it.  Answers its wait status.

sub stop {
    my ($pid, $signal) = @_;

    my $name = delete $started{$pid} // die "stop: $pid is not ours\n";

    kill $signal // 'TERM', $pid;

    for (my $end = time() + GRACE; time() < $end; sleep(0.01)) {
        return $? if waitpid($pid, WNOHANG) != 0;
    }

    kill 'KILL', $pid;
    waitpid($pid, 0);

    return $?;
}


# Runs a command that ends when we do.  Answers its pid and its standard
# output; standard error goes to its log file.

sub spawn {
    my ($name, @command) = @_;

    my $log = log_file($name);

    pipe(my $read, my $write) or die "pipe: $!\n";

    my $pid = fork() // die "fork: $!\n";

    if ($pid == 0) {
        open(STDIN, '<', '/dev/null');
        open(STDOUT, '>&', $write);
        open(STDERR, '>>', $log);

        { no warnings 'exec'; exec 'setpriv', '--pdeathsig', 'KILL', @command; }

        print STDERR "can't run setpriv: $!\n";
        POSIX::_exit(127);
    }

    $started{$pid} = $name;

    return ($pid, $read);
}


sub temporary_directory {
    return $tmp //= tempdir('kvr-test-XXXXXX', TMPDIR => 1);
}


sub log_file {
    my ($name) = @_;

    $name =~ s/\W+/-/g;

    return temporary_directory() . "/$name.log";
}


sub slurp {
    my ($file) = @_;

    open(my $in, '<', $file) or return '';
    local $/;

    return <$in> // '';
}


END {
    if ($$ == $owner) {
        my $status = $?;

        stop($_, 'KILL') for keys %started;
        File::Path::remove_tree($tmp) if defined $tmp;

        # what nginx logged is of use after a failure only

        my $servroot = $ENV{TEST_NGINX_SERVROOT} // '';

        File::Path::remove_tree($servroot)
            if $status == 0 && $servroot =~ m{/servroot-\d+$};

        $? = $status;
    }
}


1;
