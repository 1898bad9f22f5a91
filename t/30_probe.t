#!/usr/bin/perl

# Idle sessions get their keepalives: how often, when not, and what the
# server receives.

use lib 't/lib';
use MCP::Test;
use MCP::Fake ();


rhythm();
bytes();
when_not();
credentials();
pool();
finish();


# ---- how often ----

sub rhythm {
    my @fakes = fakes(3);
    my $nginx = nginx(
        fakes => \@fakes, workers => 4,
        upstream => 'mcp_keepalive zone=mcp:1m interval=1s; keepalive 8;');
    my @clients = clients($nginx, 30);

    each_client(\@clients, [qw(initialize initialized call)]);

    my $begin = now_ms();

    wait_for(sub { now_ms() - $begin > 2900 }, 4);
    $nginx->reload;
    wait_for(sub { now_ms() - $begin > 6000 }, 7);

    my $seconds = (now_ms() - $begin) / 1000;
    my @seen = map { $_->keepalives } @fakes;
    my %times;

    push @{ $times{ $_->{session} } }, $_->{t} for @seen;

    my $want = 30 * $seconds;

    cmp_ok(scalar @seen, '>=', 0.75 * $want, 'enough keepalives')
        or diag("$want expected");
    cmp_ok(scalar @seen, '<=', 1.25 * $want, 'not too many');
    is(scalar(grep { @{ $times{$_} } >= 3 } keys %times), 30,
       'every session got some');

    my $close = least_gap(\%times);

    # 25 ms for the way here
    cmp_ok($close, '>=', 800 - 25, 'no two closer than 0.8 interval');
    is(misrouted(@fakes), 0, 'each at its own server');

    my $counted = $nginx->keepalives('sent');

    cmp_ok(abs($counted - map { $_->keepalives } @fakes), '<=', 8,
           'status counts what was sent');
    cmp_ok($nginx->keepalives('ok'), '>=', $counted - 8, 'and ok');
    is($nginx->peer($_)->{state}, 'connected', "$_->{name}: connected")
        for @fakes;

    is(scalar(grep { /POST/ } $nginx->access_lines), 90,
       'keepalives are not in the access log');

    $nginx->stop;
    $_->kill for @fakes;
    return;
}


sub least_gap {
    my ($times) = @_;

    my $least = 1e9;

    for my $list (values %$times) {
        my @sorted = sort { $a <=> $b } @$list;

        for my $i (1 .. $#sorted) {
            my $gap = $sorted[$i] - $sorted[$i - 1];
            $least = $gap if $gap < $least;
        }
    }

    return $least;
}


sub misrouted {
    my $sum = 0;

    $sum += $_->stats->{misrouted} for @_;
    return $sum;
}


# ---- what the server receives ----

sub bytes {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake],
        upstream => 'mcp_keepalive zone=mcp:1m interval=150ms;'
                  . 'mcp_keepalive_pass_header X-Tenant Authorization;');
    my $c = client(
        $nginx, uri => '/mcp/a?b=%20c', host => 'Tools.Example:8080',
        headers => [['Origin', 'http://evil.example'], ['Cookie', 'a=b'],
                    ['X-Tenant', 'blue'], ['X-Other', 'no'],
                    ['Authorization', 'Bearer sesame']]);

    $c->open_session(1);
    eventually(sub { $fake->keepalives >= 2 }, 'keepalives come') or return;

    my ($one, $two) = $fake->keepalives;
    my $body = MCP::Util::json_data($one->{body});
    my $h = sub { return join '|', MCP::Fake::values_of($one, $_[0]) };

    is($one->{method}, 'POST', 'POST');
    is($one->{uri}, '/mcp/a?b=%20c', 'to the endpoint, as the client sent it');
    is($one->{version}, '1.1', 'HTTP/1.1, as the location says');
    like($body->{id}, qr/^mcpka-[\w-]+$/, 'our id');
    isnt($one->{id}, $two->{id}, 'another one each time');
    is_deeply($body, { jsonrpc => '2.0', id => $body->{id},
                       method => 'tools/list' }, 'and nothing else');
    is($h->('Content-Type'), 'application/json', 'Content-Type');
    is($h->('Accept'), 'application/json, text/event-stream', 'Accept');
    is($h->('Accept-Encoding'), 'identity', 'Accept-Encoding');
    is($h->('Content-Length'), length $one->{body}, 'Content-Length');
    is($h->('Mcp-Session-Id'), $c->session, 'the session');
    is($h->('MCP-Protocol-Version'), '2025-06-18', 'the protocol version');
    is($h->('Host'), 'Tools.Example:8080', 'the Host of the client');
    is($h->('X-Tenant'), 'blue', 'a header to be passed');
    is($h->('Authorization'), 'Bearer sesame', 'and another one');

    for my $name (qw(Origin Cookie X-Other Transfer-Encoding Expect)) {
        is($h->($name), '', "no $name");
    }

    no_version($nginx, $fake);

    $nginx->stop;
    $fake->kill;
    return;
}


sub no_version {
    my ($nginx, $fake) = @_;

    my $c = client($nginx, version => undef);

    $c->open_session(1);

    my $mine = sub { $fake->keepalives(session => $c->session) };

    eventually(sub { $mine->() >= 1 }, 'a client without version');

    my ($one) = $mine->() or return;

    is_deeply([MCP::Fake::values_of($one, 'MCP-Protocol-Version')], [],
              'no version is made up');
    return;
}


# ---- when not ----

sub when_not {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], workers => 2,
        http => 'upstream off { server %%fake1%%;'
              . ' mcp_keepalive zone=mcp interval=off; }'
              . ' upstream idle { server %%fake1%%;'
              . ' mcp_keepalive zone=mcp interval=150ms max_idle=800ms; }',
        upstream => 'mcp_keepalive zone=mcp:1m interval=150ms;',
        server => 'location /off { proxy_pass http://off; }'
                . ' location /idle { proxy_pass http://idle; }');
    my $count = sub { scalar $fake->keepalives(session => $_[0]->session) };

    # One that is ready, to know that others would have got theirs.
    my $ready = client($nginx);

    $ready->open_session;

    my ($fresh, $off, $busy, $gone, $kept, $idle) =
        map { client($nginx, uri => $_) }
        qw(/mcp /off /mcp /mcp /mcp /idle);

    $fresh->initialize;
    $_->open_session(1) for $off, $busy, $gone, $kept, $idle;

    my $last = now_ms();

    $gone->delete_session;
    $fake->rule(when => { method => 'DELETE' }, do => { status => 405 });
    $kept->delete_session;

    my ($gone_had, $kept_had) = ($count->($gone), $count->($kept));

    $fake->rule(when => { rpc => 'tools/call', session => $busy->session },
                do => { delay => 1500 });

    my $call = $busy->start_call;

    eventually(sub { $fake->requests(rpc => 'tools/call',
                                     session => $busy->session) >= 2 },
               'a call that takes its time') if turn_on($call);

    MCP::Exchange::drive([$call], timeout => 4);
    is($call->status, 200, 'it was answered');
    is(during_call($fake, $busy->session), 0, 'no keepalive while in flight');
    cmp_ok($nginx->upstream->{skipped}{busy}, '>', 0, 'skipped as busy');
    eventually(sub { $count->($busy) > 0 }, 'but afterwards');

    cmp_ok($count->($ready), '>=', 5, 'meanwhile a ready one got its own');
    is($count->($fresh), 0, 'one that is not ready got none');
    is($count->($off), 0, 'none with interval=off');
    is($count->($gone), $gone_had, 'none after DELETE');
    is($count->($kept), $kept_had, 'none after a DELETE that was refused');

    $fresh->initialized;
    eventually(sub { $count->($fresh) > 0 }, 'ready after the second 2xx');

    my @idle = $fake->keepalives(session => $idle->session);

    cmp_ok(scalar @idle, '>=', 2, 'an idle client gets some');
    cmp_ok(($idle[-1] // { t => 0 })->{t} - $last, '<=', 800 + 25,
           'none after max_idle');

    $nginx->stop;
    $fake->kill;
    return;
}


# Lets a started request go out.

sub turn_on {
    my ($x) = @_;

    return MCP::Exchange::drive([$x], until => sub { !length $x->{out} });
}


# Keepalives that came between the last slow call and its answer.

sub during_call {
    my ($fake, $session) = @_;

    my @events = grep { ($_->{session} // '') eq $session } $fake->events;
    my ($call) = grep { $events[$_]{ev} eq 'request'
                        && ($events[$_]{rpc} // '') eq 'tools/call' }
                 reverse 0 .. $#events;
    my $conn = $events[$call]{conn};
    my $found = 0;

    for my $event (@events[$call + 1 .. $#events]) {
        last if $event->{ev} eq 'answered' && $event->{conn} == $conn;
        $found++ if $event->{keepalive};
    }

    return $found;
}


# ---- credentials ----

sub credentials {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], workers => 2,
        upstream => 'mcp_keepalive zone=mcp:1m interval=150ms;');
    my @with = clients($nginx, 3,
                       headers => [['Authorization', 'Bearer sesame']]);
    my $without = client($nginx);

    $_->open_session(1) for @with, $without;

    eventually(sub { ($nginx->upstream->{skipped}{credentials} // 0) >= 3 },
               'sessions with Authorization are skipped');
    eventually(sub { $fake->keepalives(session => $without->session) >= 2 },
               'one without is not');

    my %mine = map { $_->session => 1 } @with;

    is(scalar(grep { $mine{ $_->{session} } } $fake->keepalives), 0,
       'no keepalive for them');
    is(scalar($nginx->log_lines(
           qr/\[notice\].*mcp_keepalive_pass_header/)), 1,
       'one notice names the directive');
    is(scalar($nginx->log_lines(qr/sesame/)), 0, 'no credential in the log');

    $nginx->stop;
    $fake->kill;
    return;
}


# ---- the pool ----

sub pool {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake],
        upstream => 'mcp_keepalive zone=mcp:1m interval=100ms rate=5000;'
                  . ' keepalive 4;');
    my @clients = clients($nginx, 100);

    each_client(\@clients, [qw(initialize initialized)], width => 4);

    my $before = $fake->stats;

    eventually(sub { $fake->stats->{keepalives} - $before->{keepalives}
                     >= 2000 }, '2,000 keepalives', 20);

    my $after = $fake->stats;

    cmp_ok($after->{connections} - $before->{connections}, '<', 20,
           'over fewer than 20 connections');
    is($nginx->keepalives('ok') > 1900, 1, 'they were ok');

    $nginx->stop;
    $fake->kill;
    return;
}
