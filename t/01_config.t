#!/usr/bin/perl

# Bad configurations are refused with an [emerg] that names the directive
# and what is wrong with it; good ones are not.

use lib 't/lib';
use MCP::Test;

my $version = MCP::Nginx->version;
my $ka = 'mcp_keepalive zone=mcp:1m';


# ---- good ones: what stands in the upstream ----

my @good = (
    "$ka;",
    'mcp_keepalive zone=mcp:64k;',
    "$ka interval=off;",
    "$ka interval=100ms;",
    "$ka interval=180s timeout=30s method=tools/list failures=1"
        . ' max_idle=30m jitter=20% rate=50;',
    "$ka method=ping;",
    "$ka method=auto max_idle=0 jitter=0%;",
    "least_conn; $ka; keepalive 4;",
    "zone tools 64k; least_conn; $ka;",
    "$ka; mcp_keepalive_pass_header Authorization X-Tenant;",
    "$ka; mcp_reconnect budget=5 initial=3 backoff=1s backoff_max=60s"
        . ' park=300s park_max=1h drain=5s;',
    "$ka; mcp_reconnect drain=off;",
    "$ka; mcp_pin on;",
    "$ka; mcp_pin off;",
    "$ka; mcp_pin on failover=parked;",
    "$ka; mcp_pin on failover=refused;",
);

for my $text (@good) {
    my ($passed, $said) = MCP::Nginx->config_test(
        servers => ['127.0.0.1:1'], upstream => $text);

    ok($passed, "good: $text") or diag($said);
}


# ---- and elsewhere ----

for my $part (qw(http server location)) {
    for my $text ('mcp_heartbeat 20s;', 'mcp_heartbeat off;',
                  'mcp_heartbeat 100ms;', 'mcp_stream_hold off;',
                  'mcp_stream_hold 30s;', 'mcp_stream_timeout 100ms;',
                  'mcp_heartbeat 1m; mcp_stream_timeout 1h;')
    {
        my ($passed, $said) = MCP::Nginx->config_test(
            servers => ['127.0.0.1:1'], upstream => "$ka;", $part => $text);

        ok($passed, "good in $part: $text") or diag($said);
    }
}


# ---- bad ones: [what stands in the upstream, the directive, words] ----

my @bad = (
    ['mcp_keepalive;', 'mcp_keepalive', 'arguments'],
    ['mcp_keepalive interval=1s;', 'mcp_keepalive', 'zone'],
    ['mcp_keepalive zone=mcp:63k;', 'mcp_keepalive', 'zone'],
    ['mcp_keepalive zone=mcp:0;', 'mcp_keepalive', 'zone'],
    ['mcp_keepalive zone=mcp:abc;', 'mcp_keepalive', 'zone'],
    ['mcp_keepalive zone=mcp:;', 'mcp_keepalive', 'zone'],
    ['mcp_keepalive zone=:1m;', 'mcp_keepalive', 'zone'],
    ['mcp_keepalive zone=;', 'mcp_keepalive', 'zone'],
    ['mcp_keepalive zone=nobody;', 'mcp_keepalive', 'nobody'],
    ["$ka zone=two:1m;", 'mcp_keepalive', 'zone'],
    ["$ka wrong=1;", 'mcp_keepalive', 'wrong'],
    ["$ka wrong;", 'mcp_keepalive', 'wrong'],
    ["$ka interval=1s interval=2s;", 'mcp_keepalive', 'interval'],
    ["$ka; mcp_keepalive zone=mcp;", 'mcp_keepalive', 'duplicate'],

    ["$ka interval=50ms;", 'mcp_keepalive', 'interval', '50ms'],
    ["$ka interval=99ms;", 'mcp_keepalive', 'interval', '99ms'],
    ["$ka interval=0;", 'mcp_keepalive', 'interval'],
    ["$ka interval=-1s;", 'mcp_keepalive', 'interval'],
    ["$ka interval=soon;", 'mcp_keepalive', 'interval', 'soon'],
    ["$ka interval=;", 'mcp_keepalive', 'interval'],
    ["$ka interval=99999999999999999999s;", 'mcp_keepalive', 'interval'],
    ["$ka timeout=soon;", 'mcp_keepalive', 'timeout'],
    ["$ka timeout=;", 'mcp_keepalive', 'timeout'],
    ["$ka method=tools/call;", 'mcp_keepalive', 'method', 'tools/call'],
    ["$ka method=;", 'mcp_keepalive', 'method'],
    ["$ka failures=0;", 'mcp_keepalive', 'failures'],
    ["$ka failures=-1;", 'mcp_keepalive', 'failures'],
    ["$ka failures=few;", 'mcp_keepalive', 'failures', 'few'],
    ["$ka max_idle=long;", 'mcp_keepalive', 'max_idle', 'long'],
    ["$ka jitter=some%;", 'mcp_keepalive', 'jitter'],
    ["$ka jitter=20;", 'mcp_keepalive', 'jitter'],
    ["$ka jitter=-5%;", 'mcp_keepalive', 'jitter'],
    ["$ka jitter=%;", 'mcp_keepalive', 'jitter'],
    ["$ka rate=fast;", 'mcp_keepalive', 'rate', 'fast'],
    ["$ka rate=-1;", 'mcp_keepalive', 'rate'],

    ["$ka; mcp_reconnect;", 'mcp_reconnect', 'arguments'],
    ["$ka; mcp_reconnect wrong=1;", 'mcp_reconnect', 'wrong'],
    ["$ka; mcp_reconnect budget=x;", 'mcp_reconnect', 'budget'],
    ["$ka; mcp_reconnect budget=-1;", 'mcp_reconnect', 'budget'],
    ["$ka; mcp_reconnect budget=1 budget=2;", 'mcp_reconnect', 'budget'],
    ["$ka; mcp_reconnect initial=x;", 'mcp_reconnect', 'initial'],
    ["$ka; mcp_reconnect backoff=x;", 'mcp_reconnect', 'backoff'],
    ["$ka; mcp_reconnect backoff_max=x;", 'mcp_reconnect', 'backoff_max'],
    ["$ka; mcp_reconnect park=x;", 'mcp_reconnect', 'park'],
    ["$ka; mcp_reconnect park_max=x;", 'mcp_reconnect', 'park_max'],
    ["$ka; mcp_reconnect drain=x;", 'mcp_reconnect', 'drain'],
    ["$ka; mcp_reconnect budget=1; mcp_reconnect budget=2;",
     'mcp_reconnect', 'duplicate'],

    ["$ka; mcp_pin;", 'mcp_pin', 'arguments'],
    ["$ka; mcp_pin maybe;", 'mcp_pin', 'maybe'],
    ["$ka; mcp_pin on failover=never;", 'mcp_pin', 'failover', 'never'],
    ["$ka; mcp_pin on failover=;", 'mcp_pin', 'failover'],
    ["$ka; mcp_pin on wrong=1;", 'mcp_pin', 'wrong'],
    ["$ka; mcp_pin on; mcp_pin off;", 'mcp_pin', 'duplicate'],

    ["$ka; mcp_keepalive_pass_header;", 'mcp_keepalive_pass_header',
     'arguments'],
    ["$ka; mcp_keepalive_pass_header X-One x-one;",
     'mcp_keepalive_pass_header', 'x-one', 'twice|duplicate'],
    ["$ka; mcp_keepalive_pass_header X-One; "
     . 'mcp_keepalive_pass_header X-One;',
     'mcp_keepalive_pass_header', 'X-One', 'twice|duplicate'],
    ["$ka; mcp_keepalive_pass_header 'X One';",
     'mcp_keepalive_pass_header', 'X One'],
    ["$ka; mcp_keepalive_pass_header X:One;",
     'mcp_keepalive_pass_header', 'X:One'],
    ["$ka; mcp_keepalive_pass_header '';", 'mcp_keepalive_pass_header'],
    ["$ka; mcp_keepalive_pass_header \"X\\r\\nOne\";",
     'mcp_keepalive_pass_header'],
    ["$ka; mcp_keepalive_pass_header \xc3\x9c;",
     'mcp_keepalive_pass_header'],

    ["$ka; least_conn;", 'mcp_keepalive', 'least_conn|balancing|method'],
    ["$ka; ip_hash;", 'mcp_keepalive', 'ip_hash|balancing|method'],
    ["$ka; hash \$uri;", 'mcp_keepalive', 'hash|balancing|method'],
    ["$ka; random;", 'mcp_keepalive', 'random|balancing|method'],
);

push @bad, map { ["$ka; mcp_keepalive_pass_header $_;",
                  'mcp_keepalive_pass_header', $_] }
           qw(Host Connection Content-Length Transfer-Encoding Content-Type
              Accept Accept-Encoding Mcp-Session-Id MCP-Protocol-Version
              Origin Upgrade TE Expect host mcp-session-id);

push @bad, ["keepalive 4; $ka;", 'mcp_keepalive', 'keepalive']
    if $version < 1029007;

for my $case (@bad) {
    my ($text, $directive, @words) = @$case;

    refused($text, $directive, \@words, upstream => $text);
}


# ---- elsewhere ----

refused('mcp_keepalive in a server', 'mcp_keepalive', ['not allowed'],
        server => "$ka;");
refused('mcp_status wrong', 'mcp_status', ['wrong'],
        location => 'mcp_status wrong;');
refused('mcp_status with two', 'mcp_status', ['arguments'],
        location => 'mcp_status json html;');
refused('mcp_status in a server', 'mcp_status', ['not allowed'],
        server => 'mcp_status;');

for my $name (qw(mcp_heartbeat mcp_stream_timeout mcp_stream_hold)) {
    for my $value (qw(50ms 99ms 0 -1s soon 99999999999999999999s),
                   $name eq 'mcp_stream_timeout' ? 'off' : 'of')
    {
        refused("$name $value", $name, [$value, 'at least 100ms'],
                location => "$name $value;");
    }

    refused("$name empty", $name, ['100ms'], location => "$name '';");
    refused("$name with two", $name, ['arguments'],
            location => "$name 1s 2s;");
    refused("$name twice", $name, ['duplicate'],
            location => "$name 1s; $name 2s;");
    refused("$name in an upstream", $name, ['not allowed'],
            upstream => "$ka; $name 1s;");
}

my $two = 'upstream two { server 127.0.0.1:2; %s }';

refused('two sizes for one zone', 'mcp_keepalive', ['mcp', 'zone|size'],
        http => sprintf($two, 'mcp_keepalive zone=mcp:2m;'),
        upstream => "$ka;");
refused('a zone of another module', 'mcp', [],
        http => 'limit_req_zone $uri zone=mcp:1m rate=1r/s;',
        upstream => "$ka;");

for my $order (0, 1) {
    my @text = ('mcp_keepalive zone=mcp:1m;', 'mcp_keepalive zone=mcp;');

    my ($passed, $said) = MCP::Nginx->config_test(
        servers => ['127.0.0.1:1'],
        http => sprintf($two, $text[$order]), upstream => $text[1 - $order]);

    ok($passed, 'one zone for two upstreams, '
                . ($order ? 'used first' : 'created first')) or diag($said);
}

if ($version >= 1029006) {
    refused('sticky beside mcp_pin on', 'mcp_pin', ['sticky'],
            upstream => "sticky cookie srv; $ka; mcp_pin on;");
}

finish();


sub refused {
    my ($name, $directive, $words, %parts) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my ($passed, $said) = MCP::Nginx->config_test(
        servers => ['127.0.0.1:1'], %parts);
    my ($emerg) = $said =~ /(\[emerg\].*)/s;

    $emerg //= '';

    my @missing = grep { $emerg !~ /$_/i } @$words;

    unshift @missing, qq("$directive")
        unless $emerg =~ /"\Q$directive\E[" ]/;

    ok(!$passed && !@missing, "bad: " . ($name =~ s/[^ -~]+/?/gr));
    diag("misses: @missing\nsaid: $said") if $passed || @missing;
    return;
}
