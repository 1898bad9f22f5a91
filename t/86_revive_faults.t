#!/usr/bin/perl

# Revivals that fail: servers that refuse, hang or talk nonsense, peers and
# workers that die meanwhile, the limit; and that no call ever runs twice.

use lib 't/lib';
use MCP::Exchange ();
use MCP::Fake ();
use MCP::Lost;
use MCP::Peers;
use MCP::Revive;
use MCP::Test;
use MCP::Util qw(json_text);

my $long = $ENV{MCP_LONG};
my $timeout = 500;
my $ka = "mcp_keepalive zone=mcp:1m interval=1h timeout=${timeout}ms;";
my $often = 'mcp_reconnect backoff=100ms backoff_max=200ms budget=1000000'
          . ' initial=1000000 park=200ms; mcp_pin on failover=refused;';
my $on = "$ka $often mcp_revive on limit=1000000; keepalive 8;";

subtest bad_starts => \&bad_starts;
subtest hangs => \&hangs;
subtest bad_second => \&bad_second;
subtest limit => \&limit;
subtest once => \&once_a_request;
subtest second_dies => \&second_dies;
subtest nobody => \&nobody_left;
subtest worker_dies => \&worker_dies;
subtest left => \&all_leave;
subtest small_zone => \&small_zone;
subtest never_twice => \&never_twice;
finish();


# ---- helpers ----

sub forgotten {
    my ($c, @fakes) = @_;

    $_->forget for @fakes;
    return mark_trail($c);
}


# The client is told, in time.

sub told {
    my ($x, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $ok = is_ours($x, $name);

    return $ok if $x->ms < ($timeout + 700) * slow();
    fail("$name: in time");
    diag($x->ms . ' ms');
    return 0;
}


# ---- answers to initialize that are none ----

sub bad_starts {
    my $fake = fake();
    my $nginx = nginx(fakes => [$fake], workers => 2, upstream => $on);
    my $json = 'application/json';
    my $result = '{"jsonrpc":"2.0","id":"%s","result":{"protocolVersion":"%s"'
               . ',"capabilities":{},"serverInfo":{"name":"x","version":"1"}}}';

    my @bad = (
        [error => { no_echo => 1, error => { code => -32603,
                    message => 'Internal error' } }],
        [error_and_id => { error => { code => -32602, message => 'no' } }],
        (map { ["status_$_" => { status => $_, body => '', no_echo => 1 }] }
             302, 400, 401, 403, 404, 405, 429, 500, 502, 503),
        [status_400_and_id => { status => 400 }],
        [busy => { status => 503, body => '', no_echo => 1,
                   headers => [['Retry-After', '1']] }],
        [no_id => { no_echo => 1 }],
        [empty_id => { no_echo => 1, headers => [['Mcp-Session-Id', '']] }],
        [blank_id => { no_echo => 1, headers => [['Mcp-Session-Id', 'a b']] }],
        [odd_id => { no_echo => 1,
                     headers => [['Mcp-Session-Id', "a\x{c3}\x{bc}b"]] }],
        [two_ids => { headers => [['Mcp-Session-Id', 'another']] }],
        [no_version => { type => $json, body =>
                         '{"jsonrpc":"2.0","id":"mcpka-1","result":{}}' }],
        [garbage => { type => $json, body => 'garbage' }],
        [half_json => { type => $json, body => '{"jsonrpc":"2.0","id":' }],
        [null => { type => $json, body => 'null' }],
        [html => { type => 'text/html', body => '<html>hello</html>' }],
        [empty => { body => '' }],
        [accepted => { status => 202, body => '' }],
        [no_content => { status => 204, body => '' }],
        [binary => { type => $json, body => "\0\1\2\x{ff}" x 100 }],
        [no_http => { raw => "SSH-2.0-OpenSSH\r\n" }],
        [no_event => { type => 'text/event-stream', body => ": x\n\n" }],
        [bad_event => { type => 'text/event-stream', body => "data: {\n\n" }],
        [zipped => { headers => [['Content-Encoding', 'gzip']] }],
        (map { ["close_$_" => { close => $_ }], ["reset_$_" => { reset => $_ }]
             } qw(before header body)),
        [sse_cut => { mode => 'sse', close => 'body' }],
    );

    my @clients = map { agent($nginx) } 0 .. $#bad + 1;
    my $failed = 0;

    for my $case (@bad) {
        my ($name, $do) = @$case;
        my $c = shift @clients;

        $fake->forget($c->session);
        mark_trail($c);
        $fake->rule(when => { rpc => 'initialize' }, do => $do);
        told($c->call, $name);
        $fake->clear;

        my $starts = agent_starts($c);

        ok($starts == 1 || $starts == 2 && $name =~ /before/,
           "$name: it was tried") or diag($starts);
        unlike(trail($c), qr/tools.call new/, "$name: nothing went out");
        mark_trail($c);
        is_revived($c, $c->call, "$name: then it is revived");
        $failed++;
    }

    is($nginx->upstream->{sessions}{revive_failed}, $failed,
       'status: failed ones');
    is($nginx->upstream->{sessions}{revived}, $failed, 'status: revived ones');

    # another version than the client has agreed on

    my $c = shift @clients;

    $fake->forget($c->session);
    $fake->sessions(version => '2024-11-05');
    told($c->call, 'another version');
    $fake->sessions(version => undef);
    is_revived($c, $c->call, 'another version: then it is revived');

    my @shown = hidden_ids($nginx);

    is("@shown", '', 'no id stands in a log or the status');
    $nginx->stop;
    $fake->kill;
    return;
}


# ---- no answer in time ----

sub hangs {
    my $fake = fake();
    my $nginx = nginx(fakes => [$fake], workers => 2, upstream => $on,
                      server => 'keepalive_timeout 0;');
    my %bad = (
        half => { hang => 'body' }, late => { delay => 1500 },
        no_event => { type => 'text/event-stream', body => '',
                      stay_open => 1, heartbeat => 50 },
        sse_half => { mode => 'sse', hang => 'body' });
    my $before = $nginx->connections;

    for my $name (sort keys %bad) {
        my $c = agent($nginx);

        forgotten($c, $fake);
        $fake->rule(when => { rpc => 'initialize' }, do => $bad{$name});

        # some wait together

        my @all = map { $_ == 3 ? $c->start_get : $c->start_call } 1 .. 4;

        MCP::Exchange::drive(\@all, timeout => 4);
        told($_, $name) for @all[0 .. 1, 3];
        ok($all[2]->over || $all[2]->status == 200, "$name: GET is answered");
        $_->abort for @all;
        cmp_ok(agent_starts($c), '<=', 2, "$name: tried once, twice at most");
        $fake->clear;
        mark_trail($c);
        is_revived($c, $c->call, "$name: then it is revived");
    }

    eventually(sub { $nginx->connections <= $before },
               'no connection is left', 3)
        or diag($nginx->connections . " over $before");
    $nginx->stop;
    $fake->kill;
    return;
}


# ---- what the server makes of notifications/initialized ----

sub bad_second {
    my $fake = fake();
    my $nginx = nginx(fakes => [$fake], workers => 2, upstream => $on);
    my $when = { rpc => 'notifications/initialized' };

    for my $do ({ status => 200, body => '{}' }, { status => 204, body => '' },
                { status => 400, body => '' }, { status => 404, body => '' },
                { status => 500, body => 'no' }, { hang => 1 },
                { close => 'before' }, { reset => 'before' },
                { type => 'text/event-stream', body => '', stay_open => 1 })
    {
        my $name = json_text($do);
        my $c = agent($nginx);

        forgotten($c, $fake);
        $fake->rule(when => $when, do => $do);

        my $x = $c->call;

        $fake->clear;
        $x->status == 200 ? is_revived($c, $x, "$name: revived")
                          : told($x, $name);
        is_revived($c, $c->call, "$name: revived then")
            if ($do->{status} // 500) >= 300;
    }

    $nginx->stop;
    $fake->kill;
    return;
}


# ---- the limit ----

sub limit {
    for my $limit (1, 3) {
        my $fake = fake();
        my $text = $limit == 3 ? '' : " limit=$limit";
        my $nginx = nginx(
            fakes => [$fake], workers => 2,
            upstream => "$ka $often mcp_revive on$text; keepalive 8;");
        my ($refused, $proven, $empty, $other) = map { agent($nginx) } 1 .. 4;
        my $no = { status => 500, body => 'no', no_echo => 1 };

        # it cannot be started

        forgotten($refused, $fake);
        $fake->rule(when => { rpc => 'initialize' }, do => $no);

        for my $n (1 .. $limit + 3) {
            told($refused->call, "limit $limit, refused, $n");
        }

        is(agent_starts($refused), $limit, "limit $limit, refused: so often");
        $fake->clear;
        is_lost($refused->call, "limit $limit, refused: never again");
        is(agent_starts($refused), $limit, "limit $limit, refused: in vain");

        # another session is another matter

        mark_trail($other);
        is_revived($other, $other->call, "limit $limit: another session");

        # started, but of no use: GET proves nothing

        forgotten($empty, $fake);

        for my $n (1 .. $limit) {
            my $x = $empty->get;

            is($x->status, 200, "limit $limit, no proof: $n");
            $x->abort;
            $fake->forget;
        }

        is($empty->call->status, 404, "limit $limit, no proof: one too many");
        is(agent_starts($empty), $limit, "limit $limit, no proof: so often");

        # proof in between

        for my $n (1 .. 2 * $limit + 1) {
            forgotten($proven, $fake);
            is_revived($proven, $proven->call, "limit $limit, proof: $n");
        }

        # who starts over is let

        my $x = $refused->initialize;

        is($x->status, 200, "limit $limit: a new session");
        $refused->initialized;
        $refused->call;
        forgotten($refused, $fake);
        is_revived($refused, $refused->call, "limit $limit: has its own");
        $nginx->stop;
        $fake->kill;
    }

    return;
}


# ---- a request waits once ----

sub once_a_request {
    my $fake = fake();
    my $nginx = nginx(fakes => [$fake], workers => 2, upstream => $on);
    my $c = agent($nginx);
    my $lost = rpc_error(404, -32001, 'Session not found');

    $fake->rule(when => { rpc => 'tools/call' }, do => $lost);
    mark_trail($c);

    my $x = $c->call;

    is($x->status, 404, 'lost again at once: 404');
    is(trail($c), TRAIL, 'started once, sent twice');
    is($x->header('Mcp-Session-Id') // $c->session, $c->session,
       'no id but its own');

    # neither is what the server says of the new id shown

    unlike($x->{http}{body} . json_text($x->headers),
           qr/\Q@{[ (requests_of($c))[-1]{session} ]}\E/, 'the new id is not');
    $fake->clear;
    is_revived($c, $c->call, 'the next one');

    # a call that fails for another reason is not sent again

    for my $do ({ reset => 'before' }, { close => 'header' },
                { status => 500, body => 'no' })
    {
        my $name = json_text($do);

        forgotten($c, $fake);
        $fake->rule(when => { rpc => 'tools/call', known => 1 }, do => $do);
        $x = $c->call;
        $fake->clear;
        ok($x->status == 502 || $x->status == 500 || $x->{failed},
           "$name: as it is") or diag($x->text);
        is(trail($c) =~ s/(?:new\d*|old)/id/gr,
           TRAIL =~ s/(?:new|old)/id/gr, "$name: not sent again");
        is_revived($c, $c->call, "$name: then");
    }

    $nginx->stop;
    $fake->kill;
    return;
}


# ---- the second peer dies ----

sub second_dies {
    my %how = (
        refuses => sub { $_[0]->refuse(drop => 1) },
        start_cut => sub { $_[0]->rule(when => { rpc => 'initialize' },
                                       do => { reset => 'before' }) },
        then_cut => sub { $_[0]->rule(
            when => { rpc => 'notifications/initialized' },
            do => { reset => 'before' }) },
        killed_at_start => sub { $_[0]->rule(when => { rpc => 'initialize' },
                                             do => { delay => 200 }) },
    );

    dies(2, $_, $how{$_}) for sort keys %how;
    dies(3, $_, $how{$_}) for qw(refuses killed_at_start);

    return;
}


sub dies {
    my ($n, $way, $how) = @_;

    my ($dead, $ill) = my @fakes = fakes($n);
    my $nginx = nginx(fakes => \@fakes, workers => 2, upstream => $on);
    my $name = "$n peers, $way";
    my $c;

    for (1 .. 20) {
        $c = agent($nginx);
        last if $c->call->server eq $dead->{name};
    }

    mark_trail($c);
    $dead->kill;
    $how->($ill);

    # the one that is not known yet to be ill may be asked

    my $seen = () = $ill->requests(rpc => 'initialize');
    my $x = $c->start_call;

    if ($way eq 'killed_at_start') {
        MCP::Exchange::drive([$x], timeout => 1, until => sub {
            return $x->over || $ill->requests(rpc => 'initialize') > $seen });
        $ill->kill;
    }

    $c->wait($x);
    $x->status == 200 ? is_revived($c, $x, "$name: revived")
                      : is_ours($x, $name);

    if ($n == 3) {
        eventually(sub { $x = $c->call; return $x->status == 200 },
                   "$name: by the third peer", 2);
        is_revived($c, $x, "$name: under its id");
    }

    $ill->{pid} ? $ill->accept : $ill->start;
    $ill->clear;
    eventually(sub { $x = $c->call; return $x->status == 200 },
               "$name: back", 3);
    is_revived($c, $x, "$name: back, under its id");
    $dead->start;
    is_revived($c, $c->call, "$name: the first is back, too");
    $nginx->stop;
    $_->kill for @fakes;
    return;
}


# ---- nobody is left ----

sub nobody_left {
    my @pair = fakes(2);
    my $nginx = nginx(fakes => \@pair, workers => 2, upstream => $on);
    my @clients = map { agent($nginx) } 1 .. 4;

    $_->kill for @pair;

    for my $turn (1 .. 3) {
        told($_->call, "nobody is left, $turn") for @clients;
    }

    $_->start for @pair;

    for my $c (@clients) {
        mark_trail($c);
        eventually(sub { $c->call->status == 200 }, 'back', 2);
        is(agent_starts($c), 1, 'back: one start');
    }

    $nginx->stop;
    $_->kill for @pair;
    return;
}


# ---- the worker that does it dies ----

sub worker_dies {
    my $fake = fake();
    my $nginx = nginx(fakes => [$fake], workers => 4, upstream => $on,
                      server => 'error_page 404 /no;');
    my $c = agent($nginx);

    forgotten($c, $fake);
    $fake->rule(when => { rpc => 'initialize' }, do => { hang => 1 },
                times => 1);

    my @all = map { $c->start_call } 1 .. 12;

    MCP::Exchange::drive(\@all, timeout => 2, until => sub {
        return agent_starts($c) == 1 });

    # whichever it is: all but one

    my @workers = $nginx->workers;

    $nginx->kill_worker($_) for @workers[0 .. 3];
    MCP::Exchange::drive(\@all, timeout => 4);
    is(scalar(grep { !$_->over } @all), 0, 'nobody waits for ever');
    eventually(sub { $c->call->status == 200 }, 'then it is revived', 7);
    is(scalar(grep { $_->status == 200 } map { $c->call } 1 .. 4), 4,
       'and lives');
    $nginx->stop;
    $fake->kill;
    return;
}


# ---- all leave while the server hangs ----

sub all_leave {
    my $fake = fake();
    my $nginx = nginx(fakes => [$fake], workers => 2, upstream => $on);
    my @clients = map { agent($nginx) } 1 .. 10;
    my $before = $nginx->connections;

    $fake->forget;
    mark_trail($_) for @clients;
    $fake->rule(when => { rpc => 'initialize' }, do => { hang => 1 });

    my @all = map { $_->start_call, $_->start_get } @clients;

    MCP::Exchange::drive(\@all, timeout => 2, until => sub {
        return !grep { !agent_starts($_) } @clients });
    $_->abort(reset => 1) for @all;
    eventually(sub { $nginx->connections <= $before },
               'no connection is left', 3)
        or diag($nginx->connections . " over $before");
    $fake->clear;
    is_revived($_, $_->call, 'the next one') for @clients;
    $nginx->stop;
    $fake->kill;
    return;
}


# ---- what is kept needs room ----

sub small_zone {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], workers => 2,
        upstream => 'mcp_keepalive zone=mcp:64k interval=1h timeout=1s'
                  . ' rate=5000;'
                  . ' mcp_revive on;');
    my @clients;

    for my $n (1 .. 80) {
        my $c = agent($nginx, open => -1);

        $c->{starting} = $c->start_rpc('initialize', {
            protocolVersion => '2025-06-18', capabilities => {},
            clientInfo => { name => "$n-" . 'n' x 1800, version => '1' } });
        $c->wait($c->{starting});
        is($c->{starting} // 0, 0, "initialize $n") if !defined $c->session;
        $c->initialized;
        $c->call;
        push @clients, $c;
    }

    $fake->forget;
    mark_trail($_) for @clients;

    my %count;

    for my $c (reverse @clients) {
        my $x = $c->call;

        $count{ $x->status }++;
        diag($x->text) if $x->status !~ /^(?:200|404)$/;
    }

    is(join(' ', grep { !/^(?:200|404)$/ } keys %count), '',
       'revived or told');
    cmp_ok($count{200} // 0, '>=', 10, 'what there is room for is kept');
    is($nginx->upstream->{sessions}{revived}, $count{200}, 'counted');

    # all alike: kept once

    $nginx->stop;
    $nginx = nginx(
        fakes => [$fake], workers => 2,
        upstream => 'mcp_keepalive zone=mcp:64k interval=1h timeout=1s'
                  . ' rate=5000;'
                  . ' mcp_revive on;');
    @clients = map { agent($nginx) } 1 .. 60;

    my $active = $nginx->upstream->{sessions}{active};

    $fake->forget;
    is(scalar(grep { $_->call->status == 200 } reverse @clients), $active,
       "equal params need little room: all $active are revived");
    $nginx->stop;
    $fake->kill;
    return;
}


# ---- never twice ----

# The answers to calls are reset at random bytes, as are, less often, those to
# lost calls, initialize and what follows.  A call that a server ran is never
# seen again, by any.

sub never_twice {
    my $want = $long ? 10_000 : 300;
    my @pair = fakes(2);
    my $nginx = nginx(
        fakes => \@pair, workers => 4,
        servers => [map { $_->addr . ' max_fails=0' } @pair],
        upstream => $on =~ s/zone=mcp:1m/zone=mcp:8m/r,
        location => 'proxy_next_upstream error timeout;');
    my @clients = map { agent($nginx) } 1 .. 24;
    my ($resets, $revived, %count) = (0, 0);
    my (%seen, %at);

    for my $fake (@pair) {
        $fake->rule(when => { rpc => 'tools/call', known => 0 },
                    do => { chop => 0.2 });
        $fake->rule(when => { rpc => 'initialize' }, do => { chop => 0.1 });
        $fake->rule(when => { rpc => 'notifications/initialized' },
                    do => { chop => 0.1 });
        $fake->rule(when => { rpc => 'tools/call', known => 1 },
                    do => { chop => 0.7 });
    }

    my $end = now_ms() + ($long ? 900_000 : 15_000) * slow();

    # chance tells how many of the resets are met by a revival

    while (($resets < $want || $revived < 20) && now_ms() < $end) {
        my @all = each_client(\@clients, [('call') x 4], width => 24);

        $count{ $_->{failed} ? 'cut' : $_->status }++ for @all;
        $pair[rand 2]->forget;
        $resets = twice(\%seen, \%at, @pair);
        $revived = $nginx->upstream->{sessions}{revived};
    }

    cmp_ok($resets, '>=', $want, "calls reset: $resets");

    my @twice = grep { $seen{$_} > 1 } keys %seen;

    is(scalar @twice, 0, 'no call was seen again after it ran')
        or diag(map { "$_: $seen{$_}\n" } @twice[0 .. ($#twice < 5 ? $#twice
                                                                    : 5)]);
    is(join(' ', grep { !/^(?:200|404|502|503|cut)$/ } keys %count), '',
       'answers');
    cmp_ok($count{200} // 0, '>=', $want / 10, 'some went well');
    cmp_ok($revived, '>=', 20, 'there were revivals');
    diag(join ', ', map { "$_: $count{$_}" } sort keys %count);
    diag('revived: ' . $nginx->upstream->{sessions}{revived} . ', failed: '
         . $nginx->upstream->{sessions}{revive_failed});
    $nginx->stop;
    $_->kill for @pair;
    return;
}


# Notes each new event of a call in order: how often it came from the time on
# when it ran.  Returns the calls that were reset.

sub twice {
    my ($seen, $at, @fakes) = @_;

    my (@new, $resets);

    for my $fake (@fakes) {
        my @events = $fake->events;
        my $from = $at->{ $fake->{name} } // 0;

        push @new, map { $_->{fake} = $fake->{name}; $_ }
                   @events[$from .. $#events];
        $at->{ $fake->{name} } = @events;
    }

    for my $event (sort { $a->{us} <=> $b->{us} } @new) {
        my $conn = "$event->{fake} $event->{conn}";

        $at->{"last $conn"} = $event->{known} && $event->{rpc} eq 'tools/call'
            if $event->{ev} eq 'request';
        $at->{resets}++ if $event->{ev} eq 'close' && $event->{by} eq 'reset'
                           && $at->{"last $conn"};
        next if ($event->{rpc} // '') ne 'tools/call';

        my ($agent) = MCP::Fake::values_of($event, 'X-Agent');
        my $call = "$agent $event->{id}";

        $seen->{$call}++ if $event->{known} || $seen->{$call};
    }

    return $at->{resets} // 0;
}
