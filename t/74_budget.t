#!/usr/bin/perl

# What is charged and what is not: attempts in their rhythm until the park,
# its doubling, one line for the revival; proofs between drops; a crowd of
# refused clients; streams that are cut.  Counts are taken at the peers.

use lib 't/lib';
use MCP::Lost;
use MCP::Peers;
use MCP::Test;

rhythm();
unproven();
flapping();
crowd();
cut_before_proof();
cut_when_proven();
finish();


# ---- one attempt after the other, as the peer sees them ----

sub rhythm {
    my $fake = fake();

    # nothing is pooled: every keepalive has a connection of its own

    $fake->rule(do => { end => 1 });

    my $nginx = nginx(
        fakes => [$fake], workers => 4,
        upstream => 'mcp_keepalive zone=mcp:1m interval=200ms;'
                  . ' mcp_reconnect budget=3 backoff=250ms park=700ms'
                  . ' park_max=1200ms;');

    place($nginx, 6, [$fake]);
    ok(proven($nginx, $fake), 'rhythm: proven');
    wait_for(sub { $fake->keepalives >= 4 });

    my $from = now_ms();

    $fake->rule(when => { keepalive => 1 }, do => { reset => 'before' });
    state_is($nginx, $fake, 'degraded', 'rhythm');
    state_is($nginx, $fake, 'parked', 'rhythm');

    my $parked_at = $nginx->peer($fake)->{attempts};

    is($parked_at, 4, 'rhythm: the 4th failed attempt parks');
    is($nginx->peer($fake)->{charges}, 4, 'rhythm: 4 charges');
    eventually(sub { $nginx->peer($fake)->{attempts} >= 7 },
               'rhythm: attempts while parked', 8);
    wait_for(sub { attempts_at($fake, $from) >= 7 });

    # 1 at once; 250, 500, 1000 ms; parked 700, 1200 (not 1400), 1200 ms

    my @at = attempts_at($fake, $from);
    my @want = (250, 500, 1000, 700, 1200, 1200);

    for my $n (0 .. $#want) {
        my $gap = defined $at[$n + 1] ? $at[$n + 1] - $at[$n] : 'none';
        my $what = $n < 3 ? 'backoff' : 'park';

        ok($gap =~ /^\d+$/ && $gap >= $want[$n] * 0.8 - 25
           && $gap <= $want[$n] * 1.2 + 250 * slow(),
           "rhythm: $what $want[$n] ms +- 20 %") or diag("$gap ms");
    }

    is(scalar @at, 7, 'rhythm: no request beside the attempts');
    is($nginx->peer($fake)->{parks}, 1, 'rhythm: parked once');
    is($nginx->peer($fake)->{charges}, 4, 'rhythm: no further charges');

    # back again

    $fake->clear;
    state_is($nginx, $fake, 'connected', 'rhythm');
    is($nginx->peer($fake)->{charges}, 0, 'rhythm: charges are gone');
    pause_ms(500);

    my @lines = map { s/: .*//sr } mcp_lines($nginx, $fake);

    shift @lines while @lines && $lines[0] !~ /degraded/;
    is_deeply(\@lines, ['[warn] connected -> degraded',
                        '[warn] degraded -> parked',
                        '[warn] parked -> connected'],
              'rhythm: a line for each step, the revival once')
        or diag(explain(\@lines));

    $nginx->stop;
    $fake->kill;
    return;
}


# The keepalives since a time but the failure that marked (those that were
# under way beside it are failures of the same epoch): attempts are alone,
# the first comes right after.

sub attempts_at {
    my ($fake, $from) = @_;

    my @at = map { $_->{t} } grep { $_->{t} >= $from } $fake->keepalives;

    # from the second on they are 200 ms apart at least

    my ($last_close) = reverse grep { $at[$_] - $at[$_ - 1] < 150 } 1 .. $#at;

    return @at[($last_close // 0) .. $#at];
}


# ---- never proven, no session: "initial" is the limit, attempts connect ----

sub unproven {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], workers => 2,
        upstream => 'mcp_keepalive zone=mcp:1m interval=200ms;'
                  . ' mcp_reconnect budget=50 initial=2 backoff=100ms'
                  . ' park=600ms;');

    $fake->refuse;
    is_unavailable(client($nginx)->initialize, 'unproven: refused');
    state_is($nginx, $fake, 'parked', 'unproven');
    is($nginx->peer($fake)->{attempts}, 3, 'unproven: the 3rd attempt parks');
    is($nginx->peer($fake)->{charges}, 3, 'unproven: 3 charges');

    my $lines = mcp_lines($nginx, $fake);

    is($lines, 2, 'unproven: two lines');

    # a connect is reach: it gets a session, which is no proof, then its call

    $fake->accept;
    state_is($nginx, $fake, 'connecting', 'unproven');
    is($nginx->peer($fake)->{charges}, 3, 'unproven: charges are kept');

    my $count = $fake->requests;

    is($count, 0, 'unproven: the attempt was a connect');

    my $c = client($nginx);

    is($c->initialize->status, 200, 'unproven: a session');
    is($nginx->peer($fake)->{state}, 'connecting', 'unproven: no proof');
    is($c->initialized->status, 202, 'unproven: its next step');
    is($c->call->status, 200, 'unproven: its first call');
    is($nginx->peer($fake)->{state}, 'connected', 'unproven: proof');
    is($nginx->peer($fake)->{charges}, 0, 'unproven: no charges');

    $nginx->stop;
    $fake->kill;
    return;
}


# ---- proof between the drops ----

sub flapping {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], workers => 2,
        upstream => 'mcp_keepalive zone=mcp:1m interval=100ms;'
                  . ' mcp_reconnect budget=3 backoff=100ms;');

    place($nginx, 3, [$fake]);
    ok(proven($nginx, $fake), 'flapping: proven');

    # each time a failure, the attempt at once and two more

    for my $n (1 .. 10) {
        $fake->rule(when => { keepalive => 1 }, do => { reset => 'before' });

        last unless ok(
            wait_for(sub { $nginx->peer($fake)->{charges} >= 1 }),
            "flapping: drop $n");

        $fake->clear;

        last unless ok(
            wait_for(sub { my $peer = $nginx->peer($fake);
                           return $peer->{reconnects} == $n
                                  && $peer->{charges} == 0 }),
            "flapping: proof $n");
    }

    my $peer = $nginx->peer($fake);

    is($peer->{parks}, 0, 'flapping: never parked');
    is($peer->{reconnects}, 10, 'flapping: ten reconnects');
    is(scalar(grep { /parked/ } mcp_lines($nginx, $fake)), 0,
       'flapping: no such line');
    is(scalar(grep { /\[notice\] degraded -> connected/ }
              mcp_lines($nginx, $fake)), 10, 'flapping: ten returns');

    $nginx->stop;
    $fake->kill;
    return;
}


# ---- refused clients ----

sub crowd {
    my ($dead, $live) = my @fakes = fakes(2);
    my $nginx = nginx(
        fakes => \@fakes, workers => 4,
        http => 'upstream alone { server %%fake1%%; mcp_keepalive zone=mcp'
              . ' interval=1h; mcp_reconnect backoff=30s; }',
        server => 'location /alone { proxy_pass http://alone; }',
        upstream => 'mcp_keepalive zone=mcp:1m interval=1h;'
                  . ' mcp_reconnect backoff=30s; keepalive 8;');
    my %at = place($nginx, 50, \@fakes);
    my @alone = clients($nginx, 10, uri => '/alone');

    each_client(\@alone, [qw(initialize initialized call)]);
    $dead->kill;

    my @pinned = @{ $at{ $dead->{name} } }[0 .. 49];
    my @told = each_client(\@pinned, [('call') x 10], width => 100);

    is(scalar(grep { $_->status == 404 && $_->body eq LOST_BODY } @told), 500,
       'crowd: 500 refused calls get our 404');

    my @none = each_client(\@alone, [('call') x 50], width => 100);

    is(scalar(grep { $_->status == 503 && $_->header('Retry-After') } @none),
       500, 'crowd: 500 with no other peer get our 503');

    for my $upstream (qw(tools alone)) {
        eventually(sub { $nginx->peer($dead, $upstream)->{charges} == 1 },
                   "crowd, $upstream: the attempt is charged", 2);
        is($nginx->peer($dead, $upstream)->{attempts}, 1,
           "crowd, $upstream: it was one");
        is($nginx->peer($dead, $upstream)->{state}, 'degraded',
           "crowd, $upstream: degraded");
        is($nginx->peer($dead, $upstream)->{epoch}, 1,
           "crowd, $upstream: marked once");
        is(scalar(grep { /degraded/ } mcp_lines($nginx, $dead, $upstream)), 1,
           "crowd, $upstream: one line");
    }

    is($nginx->peer($live)->{charges}, 0, 'crowd: the live peer has none');

    $nginx->stop;
    $_->kill for @fakes;
    return;
}


# ---- streams that the server cuts ----

sub open_streams {
    my ($fake, @clients) = @_;

    my @streams = map { $_->start_get } @clients;

    MCP::Exchange::drive(\@streams, until => sub {
        return !grep { !$_->{http}->has_head } @streams;
    });

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    is(scalar(grep { $_->status == 200 } @streams), scalar @clients,
       'streams are open');
    return @streams;
}


sub cut_before_proof {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], workers => 2,
        upstream => 'mcp_keepalive zone=mcp:1m interval=1h;'
                  . ' mcp_reconnect budget=50 initial=3 backoff=250ms park=30s'
                  . ' drain=off; keepalive 8;');

    # a handshake is no proof

    my @clients = clients($nginx, 100);

    each_client(\@clients, [qw(initialize initialized)]);
    is($nginx->peer($fake)->{state}, 'connecting', 'cut: not proven');

    for my $n (1 .. 4) {
        my @streams = open_streams($fake, @clients);

        $fake->drop(streams => 1);
        MCP::Exchange::drive(\@streams);
        is(scalar(grep { $_->over } @streams), 100, "cut $n: all are over");
        eventually(sub { $nginx->peer($fake)->{charges} == $n },
                   "cut $n: $n charges", 2);
        is($nginx->peer($fake)->{state}, $n < 4 ? 'connecting' : 'parked',
           "cut $n: " . ($n < 4 ? 'connecting' : 'parked'));

        # the step of this charge, with its jitter

        never(sub { $nginx->peer($fake)->{charges} != $n },
              "cut $n: 100 streams are one charge", 330 * 2 ** ($n - 1))
            if $n < 4;
    }

    is(scalar(grep { /-> parked/ } mcp_lines($nginx, $fake)), 1,
       'cut: one line');
    is(scalar $fake->keepalives, 0, 'cut: no keepalive, as none is ready');

    $nginx->stop;
    $fake->kill;
    return;
}


sub cut_when_proven {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], workers => 2,
        upstream => 'mcp_keepalive zone=mcp:1m interval=1h;'
                  . ' mcp_reconnect drain=off; keepalive 8;');
    my @clients = clients($nginx, 10);

    each_client(\@clients, [qw(initialize initialized call)]);

    # a client that goes is no cut

    my @streams = open_streams($fake, @clients);

    $_->abort(reset => 1) for @streams;
    never(sub { scalar $fake->keepalives }, 'clients that go: no check', 500);

    # a clean end is none either

    $fake->rule(when => { method => 'GET' },
                do => { raw => http_text('200 OK', [['Content-Type',
                    'text/event-stream']], ": bye\n\n", 'chunked') });
    @streams = map { $_->start_get } @clients;
    MCP::Exchange::drive(\@streams);
    is(scalar(grep { $_->{http}->done } @streams), 10, 'clean ends');
    never(sub { scalar $fake->keepalives }, 'a clean end: no check', 500);
    $fake->clear;

    @streams = open_streams($fake, @clients);
    $fake->drop(streams => 1);
    eventually(sub { scalar $fake->keepalives }, 'cut: a check at once', 1);
    MCP::Exchange::drive(\@streams);
    never(sub { $fake->keepalives > 1 }, 'ten cuts: one check', 600);
    is($nginx->peer($fake)->{state}, 'connected', 'cut: connected as before');
    is($nginx->peer($fake)->{epoch}, 0, 'cut: not marked');

    # a check that fails is a failure

    @streams = open_streams($fake, @clients);
    pause_ms(600);
    $fake->refuse;
    $fake->drop;
    state_is($nginx, $fake, 'degraded', 'cut, and nobody there', 2);
    MCP::Exchange::drive(\@streams);

    $nginx->stop;
    $fake->kill;
    return;
}
