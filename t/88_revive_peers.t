#!/usr/bin/perl

# Lost sessions are started again: whose they are, many requests at once,
# clients that leave, a reload, peers that die and come back, keepalives, the
# status and the log.

use lib 't/lib';
use MCP::Exchange ();
use MCP::Fake ();
use MCP::Peers;
use MCP::Revive;
use MCP::Test;

my @fakes = my ($one, $two) = fakes(2);
my $ka = 'mcp_keepalive zone=mcp:1m interval=1h timeout=3s;';

subtest owner => \&owner;
subtest flight => \&one_flight;
subtest late_answer => \&late_answer;
subtest leaves => \&leaves;
subtest reload => \&reloaded;
subtest refused => \&refused;
subtest parked => \&parked;
subtest in_turn => \&in_turn;
subtest alone => \&alone;
subtest keepalives => \&keepalives;
subtest status => \&status_and_log;
finish();


# ---- helpers ----

sub rule_all { my (@rule) = @_; $_->rule(@rule) for @fakes; return }


sub clear_all { $_->clear for @fakes; return }


# ---- whose session it is ----

sub owner {
    my $nginx = nginx(
        fakes => \@fakes, workers => 2,
        upstream => "$ka mcp_revive on limit=1000; keepalive 4;");
    my $token = ['Authorization', 'Bearer right'];
    my $own = agent($nginx, headers => [$token]);
    my $stranger = sub {
        my ($c, @headers) = @_;
        return agent($nginx, open => -1, session => $c->session,
                     headers => [@headers]);
    };
    my @strange = (['Authorization', 'Bearer wrong'], undef);

    lose($own);

    for my $header (@strange) {
        my $c = $stranger->($own, $header // ());
        my $name = $header ? 'another token' : 'no token';

        for my $n (1, 2) {
            is($c->call->status, 404, "$name: a call");
            is($c->delete_session->status, 404, "$name: DELETE");
            is($c->wait($c->start_get)->status, 404, "$name: GET");
        }
        is(agent_starts($c), 0, "$name: nothing is started");
    }

    is(agent_starts($own), 0, 'nothing is started for a stranger');
    call_is_revived($own, 'the owner');

    my ($start) = grep { ($_->{rpc} // '') eq 'initialize' }
                  requests_of($own, since => 1);

    is(join('', MCP::Fake::values_of($start, 'Authorization')),
       'Bearer right', 'started with its token');

    # a revived one is not the stranger's either: its server says no

    my $revived = (requests_of($own))[-1]{session};

    for my $header (@strange) {
        my $c = $stranger->($own, $header // ());
        my $name = $header ? 'revived, another token' : 'revived, no token';

        $_->rule(when => { method => 'DELETE' }, do => {
            status => 403, body => 'no', keep => 1 }) for @fakes;

        my $x = $c->delete_session;

        ok($x->status == 403 || $x->status == 404, "$name: DELETE")
            or diag($x->text);
        is(scalar(grep { $_ eq $revived } map { $_->[1] } @{ $x->headers }),
           0, "$name: the new id is not shown");
        clear_all();
        mark_trail($own);
        call_ok($own, "$name: the owner goes on");
        is(trail($own), 'tools/call new', "$name: where it was");
    }

    # a server that asks nobody for a token: the module does

    my $c = $stranger->($own, $strange[0]);

    $c->delete_session;
    mark_trail($own);
    is_revived($own, $own->call, 'a careless server: the owner goes on');
    cmp_ok(agent_starts($own), '<=', 1, 'a careless server: one start at most');

    # an owner without a token, and a stranger with one

    my $open = agent($nginx);

    lose($open);
    $c = $stranger->($open, $strange[0]);
    is($c->call->status, 404, 'without a token: a stranger');
    is(agent_starts($c), 0, 'without a token: nothing is started');
    call_is_revived($open, 'without a token: the owner');

    # a token that was renewed

    my $renewed = agent($nginx, headers => [$token]);

    $renewed->{headers}[1] = ['Authorization', 'Bearer renewed'];
    is($renewed->call->status, 200, 'renewed: a call');
    lose($renewed);
    call_is_revived($renewed, 'renewed');
    is(scalar(grep { /right|renewed|wrong/ } $nginx->log_lines), 0,
       'no token in the log');
    $nginx->stop;
    return;
}


# ---- ten at once, four workers ----

sub one_flight {
    my $nginx = nginx(
        fakes => \@fakes, workers => 4,
        upstream => "$ka mcp_revive on; keepalive 8;");

    for my $turn (1 .. 3) {
        my @clients = map { agent($nginx) } 1 .. 8;

        lose(@clients);
        rule_all(when => { rpc => 'initialize' }, do => { delay => 150 });

        my $from = now_ms();
        my (@all, %by);

        for my $c (@clients) {
            for my $n (1 .. 10) {
                my $x = $c->start_call;

                push @all, $x;
                $by{ $c->{agent} }{ $c->{id} } = $x;
            }
        }

        MCP::Exchange::drive(\@all, timeout => 8);
        clear_all();

        is(scalar(grep { $_->status != 200 } @all), 0,
           "turn $turn: 80 calls are answered")
            or diag(map { $_->text . "\n" }
                    (grep { $_->status != 200 } @all)[0 .. 2]);
        is(scalar(grep { ($_->header('Mcp-Session-Id') // '') ne
                         ($_->{bytes} =~ /Mcp-Session-Id: (\S+)/)[0] } @all),
           0, "turn $turn: under their ids");

        my %starts = starts_by_agent($from, @fakes);

        is(join(' ', map { $starts{ $_->{agent} } // 0 } @clients),
           join(' ', (1) x 8), "turn $turn: one initialize each");

        for my $c (@clients) {
            my %run;
            my @then = grep { ($_->{rpc} // '') =~ /initialized/ }
                       requests_of($c, since => 1);

            $run{ $_->{id} }++ for grep { $_->{known} && $_->{id} }
                                   requests_of($c, since => 1);
            is(scalar(grep { ($run{$_} // 0) != 1 }
                      keys %{ $by{ $c->{agent} } }), 0,
               "turn $turn: each call ran once") or diag(explain(\%run));
            is(scalar @then, 1, "turn $turn: one initialized");
        }

        is($nginx->upstream->{sessions}{revived}, 8 * $turn,
           "turn $turn: counted");
    }

    is($nginx->upstream->{sessions}{revive_failed}, 0, 'none has failed');
    $nginx->stop;
    return;
}


# ---- what was sent before, and is answered after ----

# The answer is about a life that is over: it goes out again, nothing more.

sub late_answer {
    my $nginx = nginx(
        fakes => \@fakes, workers => 4,
        upstream => "$ka mcp_revive on; keepalive 8;");

    for my $method (qw(call get)) {
        my $c = lose(agent($nginx));
        my $start = "start_$method";

        rule_all(when => { session => $c->session }, times => 1,
                 do => { delay => 400 });

        my $late = $c->$start;

        MCP::Exchange::drive([$late], timeout => 2, until => sub {
            return scalar requests_of($c, since => 1) });
        is_revived($c, $c->call, "$method: another one meanwhile");
        MCP::Exchange::drive([$late], timeout => 3, until => sub {
            return $late->{http}->has_head });
        MCP::Exchange::drive([$late]) if $method eq 'call';
        is_revived($c, $late, "$method: answered late");
        is(agent_starts($c), 1, "$method: one start") or diag(trail($c));
        $late->abort;
        clear_all();
    }

    $nginx->stop;
    return;
}


# ---- a client that does not wait ----

sub leaves {
    my $nginx = nginx(
        fakes => \@fakes, workers => 2,
        upstream => "$ka mcp_revive on limit=1000; keepalive 8;",
        server => 'location /aborts { proxy_ignore_client_abort on;'
                . ' proxy_pass http://tools; }');
    my $c = lose(agent($nginx));
    my $before = $nginx->connections;

    rule_all(when => { rpc => 'initialize' }, do => { delay => 400 });

    # the one for whom it was begun goes, others wait

    my $first = $c->start_call;

    MCP::Exchange::drive([$first], timeout => 2, until => sub {
        return agent_starts($c) == 1 });

    my @others = map { $c->start_call } 1 .. 4;

    MCP::Exchange::drive(\@others, timeout => 0.1);
    $first->abort(reset => 1);
    $others[3]->abort;
    MCP::Exchange::drive([@others[0 .. 2]], timeout => 6);
    is_revived($c, $_, 'one goes, another waits') for @others[0 .. 2];
    cmp_ok(agent_starts($c), '<=', 2, 'started once, twice at most');

    # nobody is left

    lose($c);

    my @all = map { $c->start_call } 1 .. 4;

    MCP::Exchange::drive(\@all, timeout => 2, until => sub {
        return agent_starts($c) >= 1 });
    $_->abort(reset => 1) for @all;
    eventually(sub { $nginx->connections <= $before },
               'all go: no connection is left', 3)
        or diag($nginx->connections . " over $before");
    clear_all();
    mark_trail($c);
    call_ok($c, 'all go: the next one');
    cmp_ok(agent_starts($c), '<=', 1, 'all go: one start at most');

    # with nginx caring for no client that goes

    $c = lose(agent($nginx, uri => '/aborts'));
    rule_all(when => { rpc => 'initialize' }, do => { delay => 200 });

    my $gone = $c->start_call;

    MCP::Exchange::drive([$gone], timeout => 2, until => sub {
        return agent_starts($c) >= 1 });
    $gone->abort(reset => 1);
    call_ok($c, 'proxy_ignore_client_abort: the next one');
    clear_all();
    eventually(sub { $nginx->connections <= $before },
               'proxy_ignore_client_abort: no connection is left', 3);
    $nginx->stop;
    return;
}


# ---- a reload in the middle ----

sub reloaded {
    my $nginx = nginx(
        fakes => \@fakes, workers => 2,
        upstream => "$ka mcp_revive on; keepalive 8;");
    my @clients = map { agent($nginx) } 1 .. 4;

    lose(@clients);
    rule_all(when => { rpc => 'initialize' }, do => { delay => 700 });

    my @all = map { $_->start_call } @clients;

    MCP::Exchange::drive(\@all, timeout => 2, until => sub {
        return !grep { agent_starts($_) != 1 } @clients });
    $nginx->reload;

    # they meet it in the new workers, the others in the old

    my @more = map { $_->start_call } @clients;

    MCP::Exchange::drive([@all, @more], timeout => 6);
    is_revived($clients[$_], $all[$_], "in the old worker, $_") for 0 .. 3;
    is_revived($clients[$_], $more[$_], "in the new worker, $_") for 0 .. 3;
    is(join(' ', map { agent_starts($_) } @clients), '1 1 1 1',
       'one start each');
    clear_all();

    # a lost session outlives it, too; so does a revived one

    mark_trail($_) for @clients;
    $nginx->reload(gone => 1);

    for my $c (@clients) {
        call_ok($c, 'revived before, called after');
        is(trail($c), 'tools/call new', 'goes straight on');
    }

    @clients = map { agent($nginx) } 1 .. 4;
    lose(@clients);
    $nginx->reload(gone => 1);
    call_is_revived($_, 'lost before, called after') for @clients;
    $nginx->stop;
    return;
}


# ---- a peer that refuses ----

sub refused {
    my ($dead, $live) = my @pair = fakes(2);
    my $nginx = nginx(
        fakes => \@pair, workers => 2,
        upstream => "$ka mcp_reconnect backoff=300ms backoff_max=600ms"
                  . ' budget=100; mcp_revive on; keepalive 8;');
    my @dead = @{ {place_agents($nginx, $dead, 6)}->{ $dead->{name} } };
    my ($first, $second, $third, $fourth) = @dead;

    $dead->kill;
    mark_trail($_) for @dead;

    # no byte of it was sent

    is_revived($first, $first->call, 'killed: the first call');
    is(trail($first), TRAIL =~ s/^tools.call old, //r, 'killed: its trail');
    state_is($nginx, $dead, 'degraded', 'killed');
    is_revived($second, $second->call, 'degraded: a call');
    is(trail($second), TRAIL =~ s/^tools.call old, //r, 'degraded: its trail');
    is_revived($third, $third->wait($third->start_rpc('notifications/x')),
               'degraded: a notification', 202);

    my $x = opens($fourth, 'degraded: GET');

    is(trail($fourth), TRAIL =~ s/^.*?, //r =~ s{tools/call}{GET}r,
       'degraded: GET, its trail');
    $x->abort;

    # the old peer is back: nobody goes there any more

    $dead->start;
    state_is($nginx, $dead, 'connecting', 'back')
        unless in_state($nginx, $dead, 'connected');

    for my $c (@dead[0 .. 3]) {
        mark_trail($c);
        call_ok($c, 'back: a call');
        is(trail($c), 'tools/call new', 'back: stays where it is');
    }

    is(scalar(grep { $_->{session} }
              $dead->requests(gen => 2, keepalive => 0)), 0,
       'back: none of them asks it');

    # those who did not call meanwhile have lost theirs there

    mark_trail($dead[5]);
    is_revived($dead[5], $dead[5]->call, 'back: one that was silent');
    is(agent_starts($dead[5]), 1, 'back: one start');
    $nginx->stop;
    $_->kill for @pair;
    return;
}


# Agents at each of the fakes, n at least at one.

sub place_agents {
    my ($nginx, $fake, $n) = @_;

    my %at;

    for (1 .. 40) {
        my $c = agent($nginx);
        my $name = $c->call->server // '?';

        push @{ $at{$name} }, $c;
        last if @{ $at{ $fake->{name} } // [] } >= $n;
    }

    return %at;
}


sub parked {
    my ($dead, $live) = my @pair = fakes(2);
    my $nginx = nginx(
        fakes => \@pair, workers => 2,
        upstream => "$ka mcp_reconnect backoff=100ms budget=1 park=30s;"
                  . ' mcp_pin on failover=parked; mcp_revive on;'
                  . ' keepalive 8;');
    my @dead = @{ {place_agents($nginx, $dead, 3)}->{ $dead->{name} } };

    eventually(sub { in_state($nginx, $dead, 'connected') }, 'proven');
    $dead->kill;
    $dead[0]->call;                                 # somebody has to notice
    state_is($nginx, $dead, 'parked', 'killed', 6);
    mark_trail($_) for @dead;

    is_revived($dead[1], $dead[1]->call, 'parked: a call');
    is(trail($dead[1]), TRAIL =~ s/^tools.call old, //r, 'parked: its trail');
    opens($dead[2], 'parked: GET')->abort;
    $nginx->stop;
    $_->kill for @pair;
    return;
}


# ---- two servers, killed in turn ----

# The one that is back is on trial when the other dies: all the same it takes
# every session at once.

sub in_turn {
    my @pair = fakes(2);
    my $nginx = nginx(
        fakes => \@pair, workers => 2,
        upstream => "$ka mcp_reconnect backoff=100ms backoff_max=200ms"
                  . ' budget=1000; mcp_revive on; keepalive 8;');
    my @clients = map { agent($nginx) } 1 .. 12;

    for my $turn (1 .. 5) {
        my ($dies, $stays) = @pair[$turn % 2, 1 - $turn % 2];

        $dies->kill;

        # two calls and a stream of each at once

        my @streams = map { $_->start_get } @clients;
        my @all = map { $_->start_call, $_->start_call } @clients;
        my $from = now_ms();

        MCP::Exchange::drive([@all, @streams], timeout => 5, until => sub {
            return !grep { !$_->over && !$_->{http}->has_head }
                    @all, @streams });
        MCP::Exchange::drive(\@all, timeout => 5);
        is_revived($clients[$_ / 2], $all[$_], "turn $turn: call $_")
            for 0 .. $#all;
        is_revived($clients[$_], $streams[$_], "turn $turn: stream $_")
            for 0 .. $#streams;
        $_->abort for @streams;
        cmp_ok(now_ms() - $from, '<', 1500 * slow(), "turn $turn: soon")
            or diag(now_ms() - $from);
        $dies->start;
        eventually(sub { !in_state($nginx, $dies, 'degraded') },
                   "turn $turn: it is back") or last;
    }

    is($nginx->upstream->{sessions}{revive_failed}, 0, 'none has failed');
    $nginx->stop;
    $_->kill for @pair;
    return;
}


# ---- a single server ----

sub alone {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], workers => 2,
        upstream => "$ka mcp_reconnect backoff=100ms backoff_max=200ms"
                  . ' budget=1000; mcp_revive on; keepalive 8;');
    my @clients = map { agent($nginx) } 1 .. 10;

    for my $turn (1, 2) {
        $fake->kill;
        mark_trail($_) for @clients;

        for my $c (@clients[0 .. 4]) {
            is_unavailable($c->call, "turn $turn: down");
        }

        is(scalar(grep { agent_starts($_) } @clients), 0,
           "turn $turn: nothing is started");
        $fake->start;

        my @all = map { $_->start_call } @clients;

        MCP::Exchange::drive(\@all, timeout => 5);
        is_revived($clients[$_], $all[$_], "turn $turn: back, client $_")
            for 0 .. 9;
        is(join(' ', map { agent_starts($_) } @clients), join(' ', (1) x 10),
           "turn $turn: one start each");
        eventually(sub { in_state($nginx, $fake, 'connected') },
                   "turn $turn: connected");
    }

    is($nginx->upstream->{sessions}{revived}, 20, 'counted');
    is($nginx->upstream->{sessions}{revive_failed}, 0, 'none has failed');
    $nginx->stop;
    $fake->kill;
    return;
}


# ---- keepalives ----

sub keepalives {
    my ($dead, $live) = my @pair = fakes(2);
    my $nginx = nginx(
        fakes => \@pair, workers => 2,
        upstream => 'mcp_keepalive zone=mcp:1m interval=150ms timeout=1s;'
                  . ' mcp_revive on; keepalive 8;');
    my ($c) = @{ {place_agents($nginx, $dead, 1)}->{ $dead->{name} } };
    my $asked = sub {
        my ($id, $from) = @_;
        return scalar grep { $_->{session} eq $id && $_->{t} > $from }
               grep { defined $_->{session} && $_->{rpc} eq 'tools/list' }
               map { $_->keepalives } @pair;
    };

    eventually(sub { $asked->($c->session, 0) >= 2 }, 'kept alive before');
    $dead->kill;
    mark_trail($c);
    is_revived($c, $c->call, 'revived');
    $c->call;

    my $from = now_ms();
    my $new = (requests_of($c))[-1]{session};

    isnt($new, $c->session, 'the new id');
    eventually(sub { $asked->($new, $from) >= 3 }, 'kept alive by the new id');
    is($asked->($c->session, $from), 0, 'and not by the old one');
    cmp_ok($nginx->peer($live)->{keepalives}{ok}, '>=', 3, 'they are ok');

    # nor does a lost one come back by a keepalive

    is(agent_starts($c), 1, 'one start');

    my $before = agent_starts($c);

    $_->forget for grep { $_->{pid} } @pair;
    eventually(sub { $nginx->keepalives('session_lost') },
               'a keepalive finds it lost');
    never(sub { agent_starts($c) > $before }, 'which starts nothing', 400);
    is_revived($c, $c->call, 'the client does');
    is(agent_starts($c), $before + 1, 'once');
    $nginx->stop;
    quiet_client($live);
    $_->kill for @pair;
    return;
}


# A stream proves nothing, a keepalive does: more restarts than the limit.

sub quiet_client {
    my ($fake) = @_;

    my $nginx = nginx(
        fakes => [$fake], workers => 2,
        upstream => 'mcp_keepalive zone=mcp:1m interval=100ms timeout=1s;'
                  . ' mcp_revive on limit=1; keepalive 8;');
    my $c = agent($nginx);

    for my $n (1 .. 3) {
        lose($c);

        my $x = opens($c, "quiet, loss $n");
        my $ok = $nginx->keepalives('ok');

        eventually(sub { $nginx->keepalives('ok') > $ok },
                   "quiet, loss $n: a keepalive proves it");
        $x->abort;
    }

    $nginx->stop;
    return;
}


# ---- status and log ----

sub status_and_log {
    my $nginx = nginx(
        fakes => [$one], workers => 2,
        upstream => "$ka mcp_revive on; keepalive 8;");
    my @clients = map { agent($nginx) } 1 .. 10;
    my $said = $nginx->upstream;

    is($said->{sessions}{revived}, 0, 'none so far');
    is($said->{sessions}{revive_failed}, 0, 'none has failed');
    lose(@clients);

    for my $c (@clients) {
        is_revived($c, $c->call, 'revived');
        $c->call;
    }

    $said = $nginx->upstream;
    is($said->{sessions}{revived}, 10, 'status: revived');
    is($said->{sessions}{revive_failed}, 0, 'status: none has failed');
    is($said->{sessions}{active}, 10, 'status: all are active');
    is($said->{sessions}{learned}, 10, 'status: nothing is learned');
    is($said->{peers}[0]{sessions}, 10, 'status: sessions of the peer');
    is_deeply($said->{answers}, { session_lost => 0, translated => 0,
                                  unavailable => 0 },
              'status: no answer of ours') or diag(explain($said->{answers}));

    my $x = $nginx->fetch('/status?format=prometheus');

    if ($x->status == 200) {
        like($x->body, qr/^mcp_keepalive_\w*revived\w*\{.*"tools".*\} 10$/m,
             'Prometheus: revived');
        like($x->body, qr/^mcp_keepalive_\w*revive_failed\w*\{.*\} 0$/m,
             'Prometheus: failed');
    }

    my $addr = $one->addr;
    my @lines = $nginx->log_lines(
        qr/\[notice\].*mcp upstream "tools" peer "\Q$addr\E":.*reviv/);

    is(scalar @lines, 1, 'one notice for the peer') or diag("@lines");
    like($lines[0] // '', qr/: \d+ /, 'with a count');
    is(scalar(grep { /\[(?:warn|error|crit)\]/ }
              $nginx->log_lines(qr/mcp /)), 0, 'nothing worse');
    $nginx->stop;
    return;
}
