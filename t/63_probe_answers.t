#!/usr/bin/perl

# What servers make of a keepalive, and what the module makes of that: asked
# with tools/list, with ping, and with auto.

use lib 't/lib';
use MCP::Fake ();
use MCP::Lost;
use MCP::Test;

# later: B48 (our answer on the client's own stream) belongs to the streams
# later: B52 (no sessions, no initialize) belongs to the modern era

my ($fake, $long) = fakes(2);
my @methods = qw(tools/list ping auto);


# ---- the table ----

# name, answer to a keepalive, its verdict, what comes of it:
#   goes      keepalives go on
#   stops     no more of them
# A broken reply may come three times, a suspect one twice (and confirmed).
# Long answers come twice only, and from a server of their own.

my @cases = (
    [B44_long => { body_bytes => 5_000_000, framing => 'chunked' },
     ok => 'goes'],
    [B44_flowing => { body_bytes => 3_000_000, framing => 'chunked',
                      hang => 'body' }, ok => 'goes'],
    [B45_cursor => { type => 'application/json', body =>
                     '{"jsonrpc":"2.0","id":0,"result":{"tools":[],'
                     . '"nextCursor":"more"}}' }, ok => 'goes'],
    [B47_409 => rpc_error(409, -32000, 'duplicate request id'),
     misroute => 'stops'],
    [B47_400 => rpc_error(400, -32600, 'Invalid Request: duplicate id'),
     misroute => 'stops'],
    [B50_go => { error => { code => 0, message => 'method "tools/list" is'
                            . ' invalid during session initialization' } },
     session_suspect => 'stops'],
    [B50_python => { error => { code => -32602,
                                message => 'Invalid request parameters' } },
     ok => 'goes'],
    [B50_ready => { error => { code => -32002,
                               message => 'Server not initialized' } },
     session_lost => 'stops'],
    [B51 => rpc_error(400, -32000, 'Bad Request: Unsupported protocol version'
                      . ' (supported versions: 2025-03-26)'),
     misroute => 'stops'],
    [B53 => rpc_error(406, -32000, 'Not Acceptable: Client must accept both'),
     misroute => 'stops'],
    [B54 => { mode => 'sse', stay_open => 1, framing => 'chunked' },
     ok => 'goes'],
    [B56_zero => { id => 0 }, ok => 'goes'],
    [B56_null => { id => undef, error => { code => -32603,
                                           message => 'no text ids' } },
     ok => 'goes'],
    [B56_stream => { mode => 'sse', id => 0 }, broken_reply => 'stops'],
    [B56_stream_null => { mode => 'sse', id => undef,
                          error => { code => -32603, message => 'no' } },
     ok => 'goes'],
    [B57_empty => { type => 'application/json', body => '' },
     broken_reply => 'stops'],
    [B57_null => { type => 'application/json', body => 'null' },
     broken_reply => 'stops'],
    [B57_204 => { status => 204, body => '' }, broken_reply => 'stops'],
    [B57_202 => { status => 202, body => '' }, broken_reply => 'stops'],
    [B58 => { type => 'text/html', body => '<p>sign in' },
     misroute => 'stops'],
    [B58_text => { type => 'text/plain', body => 'pong' },
     broken_reply => 'stops'],
    [B59 => { mode => 'sse', framing => 'chunked', priming => 1, notify =>
              '{"jsonrpc":"2.0","id":"srv-1","method":"ping"}' },
     ok => 'goes'],
    [B60 => { mode => 'sse', notify => 1 }, ok => 'goes'],
    [B61 => { batch => 1 }, ok => 'goes'],
    [B61_foreign => { type => 'application/json', body => '[]' },
     broken_reply => 'stops'],
    [bom => { type => 'application/json', body =>
              "\xef\xbb\xbf" . '{"jsonrpc":"2.0","id":0,"result":{}}' },
     ok => 'goes'],
);

my $options = 'zone=mcp interval=250ms timeout=1200ms jitter=10%';
my $proxy = 'proxy_http_version 1.1; proxy_set_header Connection "";';
my %case = map { $_->[0] => $_ } @cases;
my @all = map { my $case = $_;
                map { { case => $case, method => $_,
                        name => "$case->[0]_" . s{/}{_}r } } @methods } @cases;


# ---- one nginx with all of them ----

my @own = map { my $kind = $_; map { [$kind, $_] } @methods }
          qw(ping_refused list_refused both_refused other_words ping_ignored);

$_->[2] = "$_->[0]_" . $_->[1] =~ s{/}{_}r for @own;

my $nginx = nginx(
    fakes => [$fake, $long], workers => 2, connections => 2048,
    servers => [$fake->addr],
    upstream => 'mcp_keepalive zone=mcp:4m interval=200ms;',
    http => 'upstream endless { server %%fake1%%;'
          . ' mcp_keepalive zone=mcp interval=300ms timeout=500ms; }'
          . join('', map { "upstream up_$_->[0] { server " . server_of($_->[0])
                           . "; mcp_keepalive $options method=$_->[1];"
                           . ' keepalive 2; }' }
                     (map { [$_->{name}, $_->{method}] } @all),
                     (map { [@$_[2, 1]] } @own)),
    server => "location /endless { $proxy proxy_pass http://endless; }"
            . join('', map { "location /$_ { $proxy proxy_pass"
                             . " http://up_$_; }" }
                       (map { $_->{name} } @all), (map { $_->[2] } @own)));

my %client = map { $_ => client($nginx, uri => "/$_") }
             (map { $_->{name} } @all), (map { $_->[2] } @own);

# rules first: then the first keepalive meets them

for my $one (@all) {
    my $server = $one->{name} =~ /^B44/ ? $long : $fake;

    $server->rule(do => $one->{case}[1],
                  when => { keepalive => 1, uri => "/$one->{name}" },
                  $server == $long ? (times => 2) : ());
}

my %refusal = (
    ping_refused => [['ping', { error => {
        code => -32601, message => 'Method not found' } }]],
    list_refused => [['tools/list', { error => {
        code => -32601, message => 'Method not found' } }]],
    both_refused => [map { [$_, { error => {
        code => -32601, message => 'Method not found' } }] }
                     qw(ping tools/list)],
    other_words => [['ping', { error => {
        code => -32603, message => 'Method not supported: ping' } }]],
    ping_ignored => [['ping', { hang => 1 }]],
);

for my $own (@own) {
    for my $rule (@{ $refusal{$own->[0]} }) {
        $fake->rule(do => $rule->[1],
                    when => { keepalive => 1, uri => "/$own->[2]",
                              rpc => $rule->[0] });
    }
}

$fake->rule(do => { error => { code => -32000,
                               message => 'Unknown method: ping' } },
            when => { keepalive => 1, uri => '/other_words_auto',
                      rpc => 'ping' });

each_client([values %client], [qw(initialize initialized)], width => 20);

my $endless = endless_post();
my (%by_uri, %read, %stopped);

# the latch, B41 to B43

wait_for(sub { !grep { asked($_->[2]) < 8 } @own }, 8);

my $status = $nginx->status;

for my $own (@own) {
    subtest "B41 $own->[2]" => sub { latched(@$own) };
}

# everything else

for my $case (@cases) {
    subtest $case->[0] => sub {
        run_case($_) for grep { $_->{case} == $case } @all;
    };
}

subtest stopped => \&have_stopped;
subtest request => \&what_is_asked;
subtest B50 => \&not_before_handshake;
subtest B54 => \&stream_closed;
subtest B57 => \&handshake_statuses;
subtest B58 => \&warned_once;
subtest B60 => \&own_rhythm;
subtest B61 => \&client_batches;
subtest B62 => \&endless_ended;

finish();


sub server_of { return $_[0] =~ /^B44/ ? '%%fake2%%' : '%%fake1%%' }


# The keepalives to one location.

sub asked {
    my ($name) = @_;

    for my $server ($fake, $long) {
        my @events = $server->events;

        for my $event (@events[$read{$server} // 0 .. $#events]) {
            push @{ $by_uri{ $event->{uri} } }, $event
                if $event->{ev} eq 'request' && $event->{keepalive};
        }

        $read{$server} = @events;
    }

    return @{ $by_uri{"/$name"} // [] };
}


sub run_case {
    my ($one) = @_;

    my ($name, $case, $method) = @$one{qw(name case method)};
    my (undef, $do, $verdict, $then) = @$case;
    my $said = shown($nginx, "up_$name", $method, $verdict);
    my $peer = $said->{peers}[0];
    my $first = (asked($name))[0] // {};

    is("$peer->{state} $peer->{epoch} $peer->{charges}",
       ($peer->{state} eq 'connecting' ? 'connecting' : 'connected') . ' 0 0',
       "$method: the peer is as it was");
    is($first->{rpc}, $method eq 'auto' ? 'ping' : $method,
       "$method: asked with it");

    if ($then eq 'goes') {
        eventually(sub { asked($name) >= 3 }, "$method: goes on");
        return;
    }

    my $most = { broken_reply => 3, session_lost => 2,
                 session_suspect => 4 }->{$verdict} // 1;

    eventually(sub { asked($name) >= $most }, "$method: $most of them");
    $stopped{$name} = $most;
    return;
}


sub have_stopped {
    my $end = now_ms() + 600;

    wait_for(sub { now_ms() > $end }, 2);
    is_deeply({ map { $_ => scalar asked($_) } keys %stopped }, \%stopped,
              'and no more of them');
    return;
}


# ---- B41 to B43: refused, in whatever words ----

sub latched {
    my ($kind, $method, $name) = @_;

    my @refused = map { $_->[0] } @{ $refusal{$kind} };
    my $start = $method eq 'auto' ? 'ping' : $method;
    my ($bad, $good) = ($refused[0], $refused[0] eq 'ping' ? 'tools/list'
                                                          : 'ping');
    my @seen = asked($name);

    cmp_ok(scalar @seen, '>=', 8, 'keepalives go on');
    is($seen[0]{rpc}, $start, "the first is $start");

    my $peer = $status->{upstreams}{"up_$name"}{peers}[0];
    my $count = $peer->{keepalives};

    is("$peer->{state} $peer->{epoch}", 'connected 0', 'no reconnect');

    if (@refused > 1) {
        is($count->{peer_down} // 0, 0, 'refusals are proof');
        cmp_ok($count->{unsupported}, '>=', 7, 'every one unsupported');
        return;
    }

    my @bad = grep { $_->{rpc} eq $bad } @seen;

    is(scalar @bad, $start eq $bad ? 1 : 0,
       'what was refused is not asked again');
    is($count->{unsupported} // 0, $start eq $bad && $kind ne 'ping_ignored'
       ? 1 : 0, 'unsupported, once');
    cmp_ok($count->{ok}, '>=', 5, 'ok from then on');
    is($count->{timeout} // 0, 0, 'no timeout is left of it')
        if $kind eq 'ping_ignored';
    return if $start ne $bad;

    # the peer has latched it, for all its sessions

    my $other = client($nginx, uri => "/$name");

    $other->open_session;

    my ($first) = wait_for(sub {
        my @mine = $fake->keepalives(session => $other->session);
        return $mine[0];
    }, 2);

    is(($first // {})->{rpc}, $good, "another session begins with $good");
    $other->delete_session;
    return;
}


# ---- B45, B47, B51, B53, B55: the request itself ----

sub what_is_asked {
    my @seen = $fake->keepalives;
    my (%ids, %faults);

    for my $one (@seen) {
        my $body = MCP::Util::json_data($one->{body}) // {};
        my $h = sub { join '|', MCP::Fake::values_of($one, $_[0]) };

        $ids{ $one->{id} }++;
        $faults{method}++ if $one->{method} ne 'POST';
        $faults{session}++ if !defined $one->{session};
        $faults{id}++ if $one->{id} !~ /^mcpka-\w{8,}$/;
        $faults{params}++ if exists $body->{params};
        $faults{rpc}++ if $body->{method} !~ m{^(?:ping|tools/list)$};
        $faults{accept}++ if $h->('Accept')
                             ne 'application/json, text/event-stream';
        $faults{type}++ if $h->('Content-Type') ne 'application/json';
        $faults{version}++ if $h->('MCP-Protocol-Version') ne '2025-06-18';
    }

    cmp_ok(scalar @seen, '>=', 400, 'enough of them');
    is(scalar keys %ids, scalar @seen, 'no id twice');
    is_deeply(\%faults, {}, 'POST, with a session, no cursor, both types');

    my $names = 1 + keys %client;

    is($fake->stats->{sessions} + $long->stats->{sessions}, $names,
       'no session but those of clients');
    return;
}


# ---- B50 ----

sub not_before_handshake {
    my $c = client($nginx);

    $c->initialize;
    $fake->rule(do => { status => 400, body => '' }, times => 1,
                when => { session => $c->session });
    is($c->initialized->status, 400, 'initialized is refused');
    never(sub { $fake->keepalives(session => $c->session) },
          'no keepalive', 500);
    is($c->initialized->status, 202, 'initialized');
    eventually(sub { $fake->keepalives(session => $c->session) },
               'then there are some');
    return;
}


# ---- B54: our reply is in, the server would go on for ever ----

sub stream_closed {
    my @mine = map { asked('B54_' . s{/}{_}r) } @methods;
    my %ours = map { $_->{conn} => 1 } @mine;

    cmp_ok(scalar keys %ours, '>=', 9, 'each on a connection of its own');

    my @closed;

    eventually(sub {
        @closed = grep { $_->{ev} eq 'close' && $ours{ $_->{conn} } }
                  $fake->events;
        @closed >= keys(%ours) - 3;
    }, 'which was closed');
    is(scalar(grep { $_->{by} ne 'peer' } @closed), 0, 'by us');
    is(scalar(grep { ($_->{method} // '') eq 'GET' } $fake->events), 0,
       'nobody sent a GET');
    return;
}


# ---- B57: a notification is accepted in many ways ----

sub handshake_statuses {
    for my $do ({ status => 200, body => '' }, { status => 202, body => '' },
                { status => 204, body => '' },
                { status => 200, type => 'application/json', body => 'null' })
    {
        my $c = client($nginx);

        $c->initialize;
        $fake->rule(do => $do, times => 1,
                    when => { session => $c->session,
                              rpc => 'notifications/initialized' });
        is($c->initialized->status, $do->{status}, "$do->{status} is passed");
        eventually(sub { $fake->keepalives(session => $c->session) },
                   'and is as good as any');
        $c->delete_session;
    }

    return;
}


# ---- B58 ----

sub warned_once {
    my $name = 'B58_ping';
    my $c = client($nginx, uri => "/$name");

    $c->open_session(1);
    eventually(sub { ($nginx->keepalives('misroute', "up_$name")) >= 2 },
               'another session, the same page');

    my @lines = $nginx->log_lines(qr/\[warn\].*"up_$name".*keepalives/);

    is(scalar @lines, 1, 'one warning') or diag(explain(\@lines));
    is($c->call->status, 200, 'the client is served');
    $c->delete_session;
    return;
}


# ---- B60: what comes on the answer's stream starts nothing ----

sub own_rhythm {
    for my $name (map { ("B60_$_", "B59_$_", "B45_cursor_$_") }
                  map { s{/}{_}r } @methods)
    {
        my @t = map { $_->{t} } asked($name);
        my @gaps = sort { $a <=> $b } map { $t[$_] - $t[$_ - 1] } 1 .. $#t;

        cmp_ok($gaps[0], '>=', 250 * 0.9 - 25, "$name: one per interval");
    }

    return;
}


# ---- B61 ----

sub client_batches {
    my $c = client($nginx);

    $c->open_session(1);

    my $batch = '[{"jsonrpc":"2.0","id":1,"method":"tools/list"},'
              . ' {"jsonrpc":"2.0","id":2,"method":"ping"}]';
    my $reply = '[{"jsonrpc":"2.0","id":1,"result":{}},'
              . ' {"jsonrpc":"2.0","id":2,"result":{}}]';

    $fake->rule(times => 1, when => { session => $c->session,
                                      keepalive => 0 },
                do => { type => 'application/json', body => $reply });

    my $x = $c->request('POST', $batch, $c->mcp_headers);

    is($x->body, $reply, 'the answer to a batch is passed');
    is(scalar(grep { ($_->{body} // '') eq $batch } $fake->requests), 1,
       'and so was the batch');

    # initialize inside an array starts nothing

    my $start = '[{"jsonrpc":"2.0","id":1,"method":"initialize"}]';

    $fake->forget($c->session);
    is($c->call->status, 404, 'lost');

    my $before = $fake->requests(session => $c->session);

    is_lost($c->request('POST', $start, $c->mcp_headers),
            'initialize in an array');
    is(scalar $fake->requests(session => $c->session), $before,
       'is no initialize');
    return;
}


# ---- B62: busy, but not for ever ----

sub endless_post {
    my $c = client($nginx, uri => '/endless');

    $c->open_session(1);
    eventually(sub { $fake->keepalives(uri => '/endless') },
               'B62: keepalives come');

    $fake->rule(when => { uri => '/endless', rpc => 'tools/call' },
                do => { hang => 1 });

    my $call = $c->start_call;

    MCP::Exchange::drive([$call], until => sub { !length $call->{out} });

    return { call => $call, began => now_ms() };
}


sub endless_ended {
    my $began = $endless->{began};

    # one sent before the call may take its time, and be confirmed
    my $since = sub { grep { $_->{t} > $began + 1000 } asked('endless') };

    eventually(sub { $since->() }, 'after ten timeouts they go on', 6);
    cmp_ok((($since->())[0] // { t => 0 })->{t} - $began, '>=', 4950,
           'none before');
    ok(!$endless->{call}->over, 'the call is still open');

    my $peer = $nginx->upstream('endless')->{peers}[0];

    is("$peer->{state} $peer->{epoch}", 'connected 0',
       'the peer is connected, and was never marked');
    $endless->{call}->abort;
    return;
}
