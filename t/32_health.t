#!/usr/bin/perl

# What happens to a peer that dies, hangs and comes back: states, budget,
# backoff, parking, and one log line for each step.

use lib 't/lib';
use MCP::Test;


killed();
hanging();
finish();


# ---- killed and restarted ----

sub killed {
    my ($fake, $other) = fakes(2);
    my $nginx = nginx(
        fakes => [$fake, $other], workers => 4,
        upstream => 'mcp_keepalive zone=mcp:1m interval=250ms jitter=0%;'
                  . 'mcp_reconnect budget=3 backoff=200ms park=1s'
                  . ' park_max=2s drain=off; keepalive 4;');
    my @clients = clients($nginx, 8);

    each_client(\@clients, [qw(initialize initialized call)]);
    eventually(sub { $nginx->peer($fake)->{state} eq 'connected'
                     && $nginx->peer($other)->{state} eq 'connected' },
               'both peers are connected');
    eventually(sub { $fake->keepalives >= 4 }, 'keepalives run');

    $fake->kill;
    outage($nginx, $fake);

    my $alive = $other->stats->{keepalives};

    eventually(sub { $other->stats->{keepalives} > $alive },
               'the other peer gets its keepalives');
    is($nginx->peer($other)->{state}, 'connected', 'and stays connected');

    $fake->restart;
    recovery($nginx, $fake);

    $nginx->stop;
    $_->kill for $fake, $other;
    return;
}


sub outage {
    my ($nginx, $fake) = @_;

    my @steps = watch($nginx, $fake, sub { $_[0]{attempts} >= 6 }, 9);
    my $name = $fake->addr;
    my @down = $nginx->log_lines(
        qr/mcp upstream "tools" peer "$name": connected -> degraded/);

    is(scalar @down, 1, 'degraded: one line, over 4 workers');
    like($down[0] // '',
         qr/\[warn\].*: connect\(\) failed \(111: Connection refused\)/,
         'with the reason');

    my @parked = $nginx->log_lines(
        qr/peer "$name": degraded -> parked: .*Connection refused/);

    is(scalar @parked, 1, 'parked: one line');
    like($parked[0] // '', qr/\[warn\]/, 'at warn');

    # 1st at once; 200, 400, 800 ms; then a park of 1 s that doubles.
    my %at = map { $_->{attempts} => $_ } reverse @steps;
    my %want = (2 => 200, 3 => 400, 4 => 800, 5 => 1000, 6 => 2000);

    for my $n (sort keys %want) {
        my $gap = $at{$n} && $at{ $n - 1 }
                  ? $at{$n}{t} - $at{ $n - 1 }{t} : 'no such attempt';

        ok($gap =~ /^\d+$/ && $gap >= $want{$n} - 80
           && $gap <= $want{$n} * 1.25 + 250,
           "attempt $n after $want{$n} ms") or diag("came after $gap");
    }

    is_deeply([map { ($at{$_} // {})->{charges} } 1 .. 4], [1 .. 4],
              'each failed attempt is charged');
    is(($at{4} // {})->{state}, 'parked', 'one more than the budget parks');

    my $peer = $nginx->peer($fake);

    is($peer->{charges}, 4, 'charges stay at limit + 1');
    is($peer->{parks}, 1, 'parked once');
    is($peer->{budget}, 3, 'budget');
    like($peer->{reason}, qr/Connection refused/, 'reason in the status');
    cmp_ok($peer->{keepalives}{peer_down} // 0, '>=', 1, 'peer_down counted');
    return;
}


# Polls a peer and keeps, for each number of attempts, when it was reached
# and what the peer was last seen as (the charge comes at an attempt's end).

sub watch {
    my ($nginx, $fake, $end, $timeout) = @_;

    my (@steps, $last);

    wait_for(sub {
        my $peer = $nginx->peer($fake);

        return 0 unless defined $peer->{attempts};

        # the first attempt may be over before the first look
        $last //= $peer->{attempts} > 1 ? $peer->{attempts} : 0;

        if ($peer->{attempts} > $last) {
            $last = $peer->{attempts};
            push @steps, { t => now_ms() };
        }

        $steps[-1] = { %$peer, t => $steps[-1]{t} } if @steps;

        return $end->($peer);
    }, $timeout, 10);

    return @steps;
}


sub recovery {
    my ($nginx, $fake) = @_;

    my $name = $fake->addr;

    eventually(sub { ($nginx->peer($fake)->{keepalives}{session_lost} // 0)
                     >= 1 }, 'back without its sessions: session_lost', 5);
    eventually(sub { $nginx->peer($fake)->{state} eq 'connecting' },
               'which is reach, no proof');
    eventually(sub { $nginx->log_lines(
                         qr/\[info\].*peer "$name": parked -> connecting/) },
               'logged');

    eventually(sub {
        client($nginx)->open_session(1);
        return $nginx->peer($fake)->{state} eq 'connected';
    }, 'a client with a new session is proof', 6);

    is(scalar($nginx->log_lines(
           qr/\[warn\].*peer "$name": connecting -> connected/)), 1,
       'logged as a warning, as it was parked');

    my $peer = $nginx->peer($fake);

    is($peer->{charges}, 0, 'no charge is left');
    cmp_ok($peer->{reconnects}, '>=', 1, 'reconnect counted');
    eventually(sub { $fake->keepalives(gen => 2, known => 1) >= 2 },
               'and the new session gets keepalives');
    return;
}


# ---- a server that does not answer ----

sub hanging {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], workers => 2,
        upstream => 'mcp_keepalive zone=mcp:1m interval=200ms timeout=300ms;'
                  . 'mcp_reconnect backoff=200ms drain=off;');
    my $c = client($nginx);
    my $name = $fake->addr;

    $c->open_session(1);
    eventually(sub { $nginx->peer($fake)->{state} eq 'connected'
                     && $fake->keepalives }, 'connected');

    $fake->rule(when => { keepalive => 1 }, do => { hang => 1 });
    eventually(sub { $nginx->peer($fake)->{state} eq 'degraded' },
               'hanging: degraded', 4);

    my @line = $nginx->log_lines(
        qr/peer "$name": connected -> degraded: .*(?:time|110)/i);

    is(scalar @line, 1, 'one line, with a reason');
    cmp_ok($nginx->peer($fake)->{keepalives}{timeout} // 0, '>=', 1,
           'timeout counted');

    $fake->clear;
    eventually(sub { $nginx->peer($fake)->{state} eq 'connected' },
               'answering again: connected', 4);
    is(scalar($nginx->log_lines(
           qr/\[notice\].*peer "$name": degraded -> connected/)), 1,
       'logged at notice, as it was never parked');
    is($nginx->peer($fake)->{charges}, 0, 'proof refills the budget');

    $nginx->stop;
    $fake->kill;
    return;
}
