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

# ---- every parameter, wrong in every way: what is said, word by word ----

# A kind of value: what it has to be, and what it is not.

my $endless = '99999999999999999999';

my %kind = (
    time => ['it must be a time of at least 100ms',
             '', qw(0 off 50ms 99ms -1s +1s 1.5s 1q soon 1s1s),
             "${endless}s"],
    time_or_off => ['it must be "off" or a time of at least 100ms',
                    '', qw(0 50ms 99ms -1s 1.5s 1q soon of offf OFF),
                    "${endless}s"],
    time_or_0 => ['it must be a time, 0 for no limit',
                  '', qw(off -1s 1.5s 1q long), "${endless}s"],
    number => ['it must be a number from 1 to 1000000',
               '', qw(0 -1 +1 1.5 1k 0x10 few 1000001), $endless],
    method => ['it must be "tools/list", "ping" or "auto"',
               '', qw(tools/call PING pin pings tools/list/)],
    failover => ['it must be "refused" or "parked"',
                 '', qw(never Refused refuse on)],
    size => ['the size must be at least 64k',
             qw(mcp:0 mcp:63k mcp:65535)],
    bytes => ['the size must be a number of bytes, with "k" or "m"',
              qw(mcp: mcp:-1m mcp:abc mcp:1g mcp:1g1 mcp:1.5m mcp::1m),
              "mcp:$endless"],
    name => ['it must be a name, or a name and a size as "name:1m"',
             '', ':1m'],
    share => ['it must be a share as "20%"',
              '', qw(20 % some 0.2 20%%x)],
    percent => ['it must be from "0%" to "90%"',
                qw(91% 100% -5% 1.5% x% 20%%), "$endless%"],
);

# A directive, what stands before its parameters, and their kinds.

my @table = (
    ['mcp_keepalive', '', zone => 'size', zone => 'bytes', zone => 'name'],
    ['mcp_keepalive', 'zone=mcp:1m',
     interval => 'time_or_off', timeout => 'time', method => 'method',
     failures => 'number', max_idle => 'time_or_0', jitter => 'share',
     jitter => 'percent', rate => 'number'],
    ['mcp_reconnect', '', budget => 'number', initial => 'number',
     backoff => 'time', backoff_max => 'time', park => 'time',
     park_max => 'time', drain => 'time_or_off'],
    ['mcp_pin', 'on', failover => 'failover'],
    ['mcp_revive', 'on', limit => 'number'],
);

my %fine = (time => '1s', time_or_off => '2s', time_or_0 => '3s',
            number => 4, method => 'ping', failover => 'parked',
            size => 'mcp:2m', bytes => 'mcp:2m', name => 'mcp:2m', share => '5%',
            percent => '5%');

for my $row (@table) {
    my ($directive, $before, @params) = @$row;
    my $ours = $directive eq 'mcp_keepalive' ? '' : "$ka; ";

    while (my ($name, $kind) = splice @params, 0, 2) {
        my ($must, @values) = @{ $kind{$kind} };
        my $in = qq(in "$directive" directive);
        my $one = "$name=$fine{$kind}";

        my @case = map { ["$name=$_", qq(invalid value "$_" of parameter)
                                      . qq( "$name" $in, $must)] } @values;

        push @case,
            ["$one $one", $before eq 'on'
                          ? "invalid number of arguments $in"
                          : qq(duplicate parameter "$name" $in)],
            map { [$_, qq(invalid parameter "$_" $in)] }
                $name, ucfirst($one), "x$one", "${name}s=1", "=$one";

        for my $case (@case) {
            my ($text, $said) = @$case;

            says("$ours$directive $before $text;", $said);
        }
    }
}

# Whole directives: "on" or "off", how many, where.

for my $name (qw(mcp_pin mcp_revive)) {
    says("$ka; $name $_;", qq(invalid value "$_" in "$name" directive,)
                           . ' it must be "on" or "off"')
        for qw(maybe 1 true onn limit=3 failover=parked);

    says("$ka; $name '';", qq(invalid value "" in "$name" directive,)
                           . ' it must be "on" or "off"');
    says("$ka; $name $_;",
         qq(invalid number of arguments in "$name" directive))
        for '', 'on limit=1 limit=2';
    says("$ka; $name on; $name on;", qq("$name" directive is duplicate));
}

my %whole = (
    mcp_keepalive => $ka, mcp_reconnect => 'mcp_reconnect budget=1',
    mcp_pin => 'mcp_pin on', mcp_revive => 'mcp_revive on',
    mcp_keepalive_pass_header => 'mcp_keepalive_pass_header X-One',
    mcp_session_lost_text => 'mcp_session_lost_text gone',
);

for my $name (sort keys %whole) {
    my $needs = qq("$name" in upstream "tools" needs "mcp_keepalive");

    says("$whole{$name};", $needs) unless $name eq 'mcp_keepalive';

    for my $part (qw(http server location)) {
        says("$whole{$name};", qq("$name" directive is not allowed here),
             $part);
    }
}

says("$ka; mcp_pin off; mcp_revive on;",
     '"mcp_revive on" cannot be used with "mcp_pin off" in upstream "tools"');
says("$ka; mcp_reconnect backoff=2s backoff_max=1s;",
     '"backoff_max" must not be less than "backoff" in "mcp_reconnect"');
says("$ka; mcp_reconnect backoff=2m;",
     '"backoff_max" must not be less than "backoff" in "mcp_reconnect"');
says("$ka; mcp_reconnect park=2h;",
     '"park_max" must not be less than "park" in "mcp_reconnect"');
says('mcp_keepalive interval=1s;',
     '"mcp_keepalive" directive must have "zone" parameter');
says('mcp_keepalive zone=nobody;',
     'zone "nobody" of "mcp_keepalive" directive is not created anywhere,'
     . ' "zone=nobody:size" is needed');

for my $text ('abc', '', "\xc3\xbcber", "a\tbc", 'good "abc"') {
    my $bad = $text =~ /"(.*)"/ ? $1 : $text;

    says("$ka; mcp_session_lost_text " . ($text =~ /"/ ? $text : "'$text'")
         . ';', qq(invalid text "$bad" in "mcp_session_lost_text" directive,)
                . ' it must be at least 4 printable ASCII characters');
}

says("$ka; mcp_session_lost_text;",
     'invalid number of arguments in "mcp_session_lost_text" directive');
says("$ka; mcp_session_lost_text gone; mcp_session_lost_text away;",
     '"mcp_session_lost_text" directive is duplicate');

# Those of locations.

my %loc = (mcp_heartbeat => 'time_or_off', mcp_stream_timeout => 'time',
           mcp_stream_hold => 'time_or_off');

for my $name (sort keys %loc) {
    my ($must, @values) = @{ $kind{$loc{$name}} };

    says("$name '$_';", qq(invalid value "$_" in "$name" directive, $must),
         'location') for @values;
    says("$name 1s; $name 1s;", qq("$name" directive is duplicate), $_)
        for qw(http server location);
    says("$name$_;", qq(invalid number of arguments in "$name" directive),
         'location') for '', ' 1s 2s';
    says("$ka; $name 1s;", qq("$name" directive is not allowed here));
}

says("mcp_status '$_';", qq(invalid value "$_" in "mcp_status" directive, it)
                         . ' must be "json", "prometheus" or "html"',
     'location') for '', qw(xml JSON jso jsons on off);
says('mcp_status json html;',
     'invalid number of arguments in "mcp_status" directive', 'location');
says('mcp_status;', '"mcp_status" directive is not allowed here', $_)
    for qw(http server);
says('mcp_status; mcp_status json;', '"mcp_status" directive is duplicate',
     'location');
says("$ka; mcp_status;", '"mcp_status" directive is not allowed here');


# ---- zones, and what else is beside ----

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

# Refused with just these words, and nginx names the place.

sub says {
    my ($text, $words, $part) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my ($passed, $said) = MCP::Nginx->config_test(
        servers => ['127.0.0.1:1'], upstream => "$ka;",
        $part // 'upstream' => $text);
    my ($emerg) = $said =~ /\[emerg\] (.*)/;

    $emerg =~ s/^\d+#\d+: // if defined $emerg;
    ok(!$passed && defined $emerg && index($emerg, $words) == 0
       && $emerg =~ m{ in \S+/nginx\.conf:\d+$},
       'says: ' . ($text =~ s/[^ -~]+/?/gr) . ($part ? " in $part" : ''))
        or diag("wanted: $words\nsaid: $said");
    return;
}
