#!/usr/bin/perl

# The bounds of the prober: rate, keepalives in flight, connections left.

use lib 't/lib';
use MCP::Test;
use IO::Socket::INET ();


rate();
in_flight();
connections();
finish();


# rate counts for one peer, all workers together.

sub rate {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], workers => 4,
        upstream => 'mcp_keepalive zone=mcp:1m interval=500ms rate=10;'
                  . ' keepalive 4;');
    my @clients = clients($nginx, 40);

    each_client(\@clients, [qw(initialize initialized)]);
    eventually(sub { $fake->keepalives >= 1 }, 'the first keepalive');

    my ($first) = map { $_->{t} } $fake->keepalives;

    wait_for(sub { now_ms() - $first > 2500 }, 4);

    my $seconds = (now_ms() - $first) / 1000;
    my $seen = $fake->keepalives;

    cmp_ok($seen, '<=', 10 * $seconds + 11, 'no more than rate allows');
    cmp_ok($seen, '>=', 10 * $seconds * 0.6, 'but about as many');
    cmp_ok($nginx->upstream->{skipped}{rate}, '>', 0, 'skipped are counted');
    is(scalar($nginx->log_lines(qr/\[warn\].*\brate\b/)), 1,
       'one warning that they fall behind');
    $nginx->stop;
    $fake->kill;
    return;
}


sub in_flight {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], workers => 4,
        upstream => 'mcp_keepalive zone=mcp:1m interval=150ms rate=5000;');
    my @clients = clients($nginx, 60);

    $fake->rule(when => { keepalive => 1 }, do => { delay => 300 });
    each_client(\@clients, [qw(initialize initialized)]);
    eventually(sub { $fake->keepalives >= 60 }, 'keepalives run');

    my ($most, %open) = (0);

    for my $event ($fake->events) {
        my $key = "$event->{conn}/$event->{n}";

        if ($event->{ev} eq 'request' && $event->{keepalive}) {
            $open{$key} = 1;
            $most = keys %open if keys %open > $most;
        }

        delete $open{$key} if $event->{ev} eq 'answered';
    }

    cmp_ok($most, '<=', 8, 'at most 8 in flight to one peer');
    cmp_ok($most, '>=', 4, 'and not one by one');
    $nginx->stop;
    $fake->kill;
    return;
}


# Idle clients take nearly all connections of the worker.

sub connections {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], connections => 64,
        upstream => 'mcp_keepalive zone=mcp:1m interval=150ms;');
    my $c = client($nginx);

    $c->open_session;
    eventually(sub { $fake->keepalives >= 1 }, 'keepalives run');

    my @idle = map { IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                           PeerPort => $nginx->port) }
               1 .. 54;

    eventually(sub { ($nginx->upstream->{skipped}{connections} // 0) > 0 },
               'few connections left: skipped, and counted');
    is($c->call->status, 200, 'clients are still served');

    my $had = $fake->keepalives;

    @idle = ();
    eventually(sub { $fake->keepalives > $had }, 'they go on afterwards');
    is($nginx->peer($fake)->{state}, 'connected', 'the peer is not blamed');
    $nginx->stop;
    $fake->kill;
    return;
}
