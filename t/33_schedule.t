#!/usr/bin/perl

# When a session is asked, and by whom: each once at a time, none forgotten,
# none after its time.  Every part is a fault that a reviewer found.

use lib 't/lib';
use MCP::Test;

my $long = long_probe();

places();
many_peers();
backoff();
max_idle();
rotated_token();
killed_call();
one_prober($long);
finish();


# More sessions fall due at once than a peer has places: they follow as places
# become free, and are not put off for an interval.

sub places {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake],
        upstream => 'mcp_keepalive zone=mcp:1m interval=2500ms jitter=0%'
                  . ' rate=5000; keepalive 8;');
    my @clients = clients($nginx, 60);

    $fake->rule(when => { keepalive => 1 }, do => { delay => 30 });
    each_client(\@clients, [qw(initialize initialized)]);

    my $begin = now_ms();
    my %first;

    eventually(sub {
        $first{$_->{session}} //= $_->{t} for $fake->keepalives;
        return keys %first == 60;
    }, '60 sessions at once: all get a keepalive', 5);

    my @order = sort { $a <=> $b } values %first;

    cmp_ok(($order[-1] // 0) - $begin, '<', 2500 + 1200 * slow(),
           '60 sessions at once: soon after they are due')
        or diag(join ' ', map { $_ - $begin } @order);
    is(most_at_once($fake), 8, '60 sessions at once: eight in flight');

    $nginx->stop;
    $fake->kill;
    return;
}


# The only peer that works is the 65th.

sub many_peers {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake],
        servers => [(map { "127.0.0.1:$_ down" } 1 .. 64), $fake->addr],
        upstream => 'mcp_keepalive zone=mcp:1m interval=200ms;'
                  . ' mcp_reconnect backoff=100ms;');

    client($nginx)->open_session(1);
    eventually(sub { $fake->keepalives >= 1 }, '65th peer: keepalives');

    $fake->refuse(drop => 1);
    eventually(sub { $nginx->peer($fake)->{state} eq 'degraded' },
               '65th peer: degraded');
    eventually(sub { $nginx->peer($fake)->{attempts} >= 2 },
               '65th peer: gets attempts');

    $fake->accept;
    eventually(sub { $nginx->peer($fake)->{state} eq 'connected' },
               '65th peer: connected again');

    $nginx->stop;
    $fake->kill;
    return;
}


# An attempt's failure sets the time of the next one, and the tick follows,
# long as the interval may be.

sub backoff {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake],
        upstream => 'mcp_keepalive zone=mcp:1m interval=1800ms;'
                  . ' mcp_reconnect backoff=100ms backoff_max=200ms'
                  . ' budget=1000;');
    my $attempts = sub { return $nginx->peer($fake)->{attempts} };

    client($nginx)->open_session(1);
    $fake->refuse(drop => 1);

    eventually(sub { $attempts->() >= 3 }, 'backoff: attempts begin');

    my ($from, $begin) = ($attempts->(), now_ms());

    wait_for(sub { $attempts->() >= $from + 10 }, 6);

    my $ms = (now_ms() - $begin) / 10;

    cmp_ok($ms, '>', 120, 'backoff: not sooner than 200 ms less 20 %');
    cmp_ok($ms, '<', 330 * slow(), 'backoff: not much later')
        or diag("$ms ms between attempts");

    $nginx->stop;
    $fake->kill;
    return;
}


# What has been due for long while the peer was away is not sent once the
# client has been silent for max_idle; an attempt is a mere connect then.

sub max_idle {
    my ($calm, $away) = fakes(2);
    my $nginx = nginx(
        fakes => [$calm, $away], servers => [$calm->addr],
        http => 'upstream away { server %%fake2%%;'
              . ' mcp_keepalive zone=mcp interval=400ms max_idle=1500ms;'
              . ' mcp_reconnect backoff=100ms backoff_max=100ms budget=999; }',
        upstream => 'mcp_keepalive zone=mcp:1m interval=400ms jitter=0%'
                  . ' max_idle=1500ms;',
        server => 'location /away { proxy_pass http://away; }');
    my @clients = (client($nginx), client($nginx, uri => '/away'));

    $_->open_session(1) for @clients;

    my $last = now_ms();

    $away->refuse(drop => 1);
    eventually(sub { $nginx->peer($away, 'away')->{state} eq 'degraded' },
               'max_idle: one peer is away');
    wait_for(sub { now_ms() > $last + 1600 });

    my $before = $away->keepalives;

    $away->accept;
    eventually(sub { $nginx->peer($away, 'away')->{state} eq 'connecting' },
               'max_idle: it is back, as a connect told');
    never(sub { $away->keepalives > $before },
          'max_idle: no keepalive there, late as it is', 700);

    my @late = grep { $_->{t} > $last + 1500 + 100 * slow() }
               map { $_->keepalives } $calm, $away;

    is(scalar @late, 0, 'max_idle: none after it');
    cmp_ok(scalar $calm->keepalives, '>=', 2, 'max_idle: some before it');

    $nginx->stop;
    $_->kill for $calm, $away;
    return;
}


# A keepalive is under way with the old token, the client goes on with a new
# one: that the old one is refused says nothing.

sub rotated_token {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake],
        upstream => 'mcp_keepalive zone=mcp:1m interval=200ms;'
                  . ' mcp_keepalive_pass_header Authorization;');
    my $client = client($nginx, headers => [['Authorization', 'old']]);

    $client->open_session(1);
    $fake->rule(when => { keepalive => 1 }, times => 1,
                do => { delay => 500, status => 401, body => '' });

    eventually(sub { $fake->keepalives >= 1 }, 'token: one is under way');

    $client->{headers} = [['Authorization', 'new']];
    is($client->call->status, 200, 'token: the client has a new one');

    eventually(sub { $nginx->keepalives('auth') == 1 },
               'token: the old one is refused');
    eventually(sub { 2 <= grep { (MCP::Fake::values_of($_, 'Authorization'))[0]
                                 eq 'new' } $fake->keepalives },
               'token: keepalives go on with the new one');

    $nginx->stop;
    $fake->kill;
    return;
}


# The worker dies that has a client's call: the session is not busy for ever,
# not even when its client asks for more.

sub killed_call {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], workers => 2,
        upstream => 'mcp_keepalive zone=mcp:1m interval=250ms timeout=300ms;');
    my $client = client($nginx);

    $client->open_session(1);
    $fake->rule(when => { rpc => 'tools/call' }, times => 1,
                do => { hang => 1 });

    my $begin = now_ms();
    my $hung = $client->start_call;

    MCP::Exchange::drive([$hung], until => sub {
        return 2 == $fake->requests(rpc => 'tools/call');
    });
    $nginx->kill_worker($_) for $nginx->workers;
    MCP::Exchange::drive([$hung]);

    my ($from, $called) = (now_ms(), 0);

    # the longest a session is busy is ten timeouts

    while (now_ms() < $begin + 3000 * slow()) {
        $called += ($client->call->status == 200);
        last if wait_for(sub { 3 <= grep { $_->{t} > $from }
                               $fake->keepalives }, 0.6 / slow());
    }

    cmp_ok(now_ms() - $begin, '<', 3000 * slow(),
           'killed call: keepalives go on');
    cmp_ok($called, '>=', 1, 'killed call: the client goes on, too');

    $nginx->stop;
    $fake->kill;
    return;
}


# A keepalive that asks three times, a timeout each, takes longer than the
# lease of one: nobody else may take the session meanwhile.  Started first and
# looked at last, as it takes its time.

sub long_probe {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], workers => 2,
        upstream => 'mcp_keepalive zone=mcp:1m interval=200ms timeout=3500ms;');
    my @lost = (status => 404, id => undef,
                error => { code => -32001, message => 'Session not found' });

    $fake->rule(when => { keepalive => 1 }, do => { hang => 1 });
    $fake->rule(when => { keepalive => 1 }, times => 1,
                do => { delay => 3000, @lost });
    $fake->rule(when => { keepalive => 1 }, times => 1,
                do => { delay => 3000, reset => 'before' });
    client($nginx)->open_session(1);

    return { fake => $fake, nginx => $nginx };
}


sub one_prober {
    my ($run) = @_;

    my $fake = $run->{fake};
    my @spans;

    eventually(sub { @spans = spans($fake); $spans[2] && $spans[2]{end} },
               'long probe: three times asked', 12);

    my ($first, undef, $third) = @spans;

    cmp_ok($third->{end} - $first->{begin}, '>', 3500 + 5000,
           'long probe: for longer than a lease');

    my @others = grep { $_->{begin} < $third->{end} - 50 } @spans;

    is(scalar @others, 3, 'long probe: no other keepalive meanwhile')
        or diag(map { "$_->{begin} .. " . ($_->{end} // '') . "\n" } @spans);

    $run->{nginx}->stop;
    $fake->kill;
    return;
}


# ---- what the fake server's log tells ----

# [{begin, end}] of all keepalives, in order.

sub spans {
    my ($fake) = @_;

    my (@spans, %open);

    for my $event ($fake->events) {
        my $span = $open{ $event->{conn} };

        if ($event->{ev} eq 'request' && $event->{keepalive}) {
            push @spans, $open{ $event->{conn} } = { begin => $event->{t} };
        }
        elsif ($span && $event->{ev} =~ /^(?:answered|close)$/) {
            $span->{end} //= $event->{t};
        }
    }

    return @spans;
}


sub most_at_once {
    my ($fake) = @_;

    my ($now, $most) = (0, 0);
    my @events = map { ([$_->{begin}, 1], [$_->{end} // $_->{begin}, -1]) }
                 spans($fake);

    for my $event (sort { $a->[0] <=> $b->[0] || $a->[1] <=> $b->[1] }
                   @events)
    {
        $now += $event->[1];
        $most = $now if $most < $now;
    }

    return $most;
}
