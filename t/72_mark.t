#!/usr/bin/perl

# A mark: every client is told once, no connection from before is used again,
# in any worker, plain or TLS.  Counts are taken at the peers.

use lib 't/lib';
use MCP::Lost;
use MCP::Peers;
use MCP::Test;

killed(interval => '1h');
killed(interval => '200ms');
black_hole();
black_hole(tls => 1);
unanswered();
reused_dead();
finish();


# ---- kill -9 under idle sessions, a client or a keepalive the first to see ----

sub killed {
    my (%arg) = @_;

    my ($dead, $live) = my @fakes = fakes(2);
    my $name = "killed, interval $arg{interval}";
    my $nginx = nginx(
        fakes => \@fakes, workers => 4,
        upstream => "mcp_keepalive zone=mcp:1m interval=$arg{interval};"
                  . ' mcp_reconnect drain=off; keepalive 8;');
    my %at = place($nginx, 100, \@fakes);
    my @idle = @{ $at{ $dead->{name} } }[0 .. 99];

    ok(proven($nginx, @fakes), "$name: both are proven");
    $dead->kill;

    if ($arg{interval} ne '1h') {
        state_is($nginx, $dead, 'degraded', $name);
    }

    # the next call of each

    my @told = each_client(\@idle, ['call']);
    my @other = grep { $_->status != 404 || $_->body ne LOST_BODY } @told;

    is(scalar @told, 100, "$name: 100 calls");
    is(scalar @other, 0, "$name: each is told that its session is lost")
        or diag(map { $_->text . "\n" } @other[0 .. ($#other < 5 ? $#other
                                                                 : 5)]);
    state_is($nginx, $dead, 'degraded', $name, 1);

    # half of them send the old id with initialize, as some clients do

    delete $_->{session} for @idle[0 .. 49];

    my @again = each_client(\@idle, [qw(initialize initialized call call)]);
    my %status;

    $status{ $_->status }++ for @again;

    is_deeply(\%status, { 200 => 300, 202 => 100 },
              "$name: each starts over, 0 other failures")
        or diag(explain(\%status));
    is(scalar(grep { ($again[4 * $_]->server // '') ne $live->{name} }
              0 .. 99), 0, "$name: at the live peer");
    is($live->stats->{misrouted}, 0, "$name: no old id got there");
    is(scalar(grep { /" 50\d / } $nginx->access_lines), 0,
       "$name: no 50x in the access log");

    my @lines = mcp_lines($nginx, $dead);

    is(scalar(grep { /^\[warn\] connected -> degraded: .*refused/i } @lines), 1,
       "$name: one warn line, with the reason") or diag(@lines);
    is(scalar mcp_lines($nginx, $live), scalar(grep { /-> connected/ }
                                               mcp_lines($nginx, $live)),
       "$name: none but its first about the live one");

    $nginx->stop;
    $_->kill for @fakes;
    return;
}


# ---- a peer that accepts and never answers ----

sub black_hole {
    my (%arg) = @_;

    my $name = $arg{tls} ? 'black hole, TLS' : 'black hole';
    my $fake = fake();
    my $front = $arg{tls} ? tls_front($fake) : undef;
    my $peer = $front ? '127.0.0.1:' . $front->port(2) : $fake->addr;
    my $scheme = $front ? 'https' : 'http';
    my $timeout = 400 * slow();
    my $interval = $timeout + 300;
    my $nginx = nginx(
        fakes => [$fake], servers => [$peer], workers => 4,
        upstream => "mcp_keepalive zone=mcp:1m interval=${interval}ms"
                  . " timeout=${timeout}ms"
                  . ' jitter=0% rate=5000; mcp_reconnect backoff=1500ms'
                  . ' backoff_max=1500ms budget=99; keepalive 16;',
        proxy => "proxy_pass $scheme://tools; proxy_http_version 1.1;"
               . ' proxy_set_header Connection "";'
               . ' proxy_set_header X-Worker $pid;');

    # more at once than one worker keeps: idle ones in each

    my @clients = clients($nginx, 40);

    $fake->rule(when => { rpc => 'tools/call' }, do => { delay => 150 });
    each_client(\@clients, [qw(initialize initialized)], width => 8);
    each_client(\@clients, ["call"], width => 40);

    my @before = keys %{{ map { conn($_) => 1 } $fake->requests }};
    my %worker = map { (MCP::Fake::values_of($_, 'X-Worker'))[0] => 1 }
                 $fake->requests(rpc => 'tools/call');

    is(scalar keys %worker, 4, "$name: each worker has used connections");

    # calls under way during the mark; one ends well after it

    my $slow = $clients[0];

    $fake->rule(when => { rpc => 'tools/call', session => $slow->session },
                do => { delay => $interval + 2 * $timeout + 500 });
    my $under_way = $slow->start_call(undef, tag('slow'));
    eventually(sub { MCP::Exchange::drive([$under_way], timeout => 0.01);
                     return tagged($fake, 'slow') }, "$name: a call under way");

    $fake->rule(when => { keepalive => 1 }, do => { hang => 1 });
    state_of($nginx, $peer, 'degraded', $name);

    my $mark = now_ms();

    eventually(sub { open_idle($fake, $front, @before) <= 1 },
               "$name: idle connections are closed in every worker", 1.5);
    MCP::Exchange::drive([$under_way]);
    is($under_way->status, 200, "$name: the call under way ends well");
    eventually(sub { open_idle($fake, $front, @before) == 0 },
               "$name: its connection is not pooled", 1);
    is(($nginx->upstream->{peers}[0] // {})->{state}, 'degraded',
       "$name: its end is no proof, as it began before the mark");

    # answers again

    $fake->clear;
    state_of($nginx, $peer, 'connected', $name);

    my @after = each_client(\@clients, [['call', undef, tag('after')], 'call'],
                            width => 20);
    my %old = map { $_ => 1 } @before;

    is(scalar(grep { $_->status != 200 } @after), 0, "$name: all calls are"
                                                     . ' answered');
    is(scalar(grep { $old{ conn($_) } && $_->{t} > $mark } $fake->requests), 0,
       "$name: no connection from before is used");

    my %new = map { conn($_) => 1 } tagged($fake, 'after');

    ok(%new && keys %new < 40, "$name: new ones are pooled");

    my @warn = grep { /^\[warn\]/ } map { s/.*?(\[\w+\])/$1/r }
               $nginx->log_lines(qr/mcp upstream "/);

    is(scalar @warn, 1, "$name: one warn line") or diag(map { "$_\n" } @warn);
    like($warn[0] // '', qr/connected -> degraded: \S.*/, "$name: a reason");

    $nginx->stop;
    $front->stop if $front;
    $fake->kill;
    return;
}


# The connection that nginx has made: the TLS server passes its number on.

sub conn {
    my ($request) = @_;

    return (MCP::Fake::values_of($request, 'X-Conn'))[0]
           // $request->{conn};
}


# How many connections from before are open: at the fake, or, as many as there
# are, at the TLS server (one is the question itself).

sub open_idle {
    my ($fake, $front, @before) = @_;

    return $front->connections - 1 if $front;

    my %conn = conns_of($fake);

    return scalar grep { !$conn{$_}{close} } @before;
}


sub tls_front {
    my ($fake) = @_;

    my $dir = MCP::Util::work_dir();

    system('openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256'
           . " -nodes -days 2 -subj /CN=tools -keyout $dir/key.pem -out $dir/cert.pem"
           . " 2>/dev/null") == 0 or die "openssl failed\n";

    return nginx(
        fakes => [$fake], module => 0,
        conf => "server { listen 127.0.0.1:%%port2%% ssl;"
              . " ssl_certificate $dir/cert.pem;"
              . " ssl_certificate_key $dir/key.pem; location / {"
              . ' proxy_pass http://%%fake1%%; proxy_buffering off;'
              . ' proxy_set_header X-Conn $connection; } }');
}


sub state_of {
    my ($nginx, $addr, $state, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return eventually(sub { $nginx->peer($addr)->{state} eq $state },
                      "$name: $state");
}


# ---- what clients show, and what is nobody's fault ----

sub unanswered {
    my ($fake, $other) = my @fakes = fakes(2);
    my $nginx = nginx(
        fakes => \@fakes, workers => 2,
        upstream => 'mcp_keepalive zone=mcp:1m interval=1h timeout=400ms;'
                  . ' mcp_reconnect backoff=30s; keepalive 4;');
    my %at = place($nginx, 2, \@fakes);
    my ($one, $two) = @{ $at{ $fake->{name} } };

    # a call that takes its time, one that its client gives up, a reset answer

    $fake->rule(when => { rpc => 'tools/call' }, do => { hang => 1 });

    my @calls = map { $_->start_call } $one, $two;

    MCP::Exchange::drive(\@calls, timeout => 0.7);
    $calls[0]->abort(reset => 1);
    MCP::Exchange::drive([$calls[1]], timeout => 0.5);

    # an initialize that its client gives up in time

    $_->rule(when => { rpc => 'initialize' }, do => { hang => 1 }) for @fakes;

    my @gone = map { client($nginx)->start_initialize } 1 .. 4;

    MCP::Exchange::drive(\@gone, timeout => 0.15 / slow());
    $_->abort for @gone;

    never(sub { grep { $nginx->peer($_)->{state} ne 'connected'
                       || $nginx->peer($_)->{epoch} } @fakes },
          'slow calls and aborted clients mark nobody', 700);
    $calls[1]->abort;

    # one that waits, and keepalives that would wait, too

    $other->clear;
    $fake->rule(when => { keepalive => 1 }, do => { hang => 1 });

    my @wait = map { client($nginx)->start_initialize } 1 .. 4;

    MCP::Exchange::drive(\@wait, until => sub {
        return in_state($nginx, $fake, 'degraded');
    }, timeout => 3);
    state_is($nginx, $fake, 'degraded', 'initialize without an answer');
    is($nginx->peer($other)->{state}, 'connected', 'the other one is well');
    is(scalar(grep { /^\[warn\] connected -> degraded/ }
              mcp_lines($nginx, $fake)), 1, 'one line');
    $_->abort for @wait;

    $nginx->stop;
    $_->kill for @fakes;
    return;
}


# A server that has restarted between two requests leaves dead connections in
# the pools: no failure of the peer, which lives.

sub reused_dead {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], workers => 2,
        upstream => 'mcp_keepalive zone=mcp:1m interval=200ms; keepalive 8;');
    my @clients = clients($nginx, 10);

    each_client(\@clients, [qw(initialize initialized call)]);

    for (1 .. 5) {
        $fake->drop(reset => 1, idle => 1);
        pause_ms(150);
    }

    eventually(sub { $fake->keepalives >= 20 }, 'dropped: keepalives go on');
    is($nginx->peer($fake)->{epoch}, 0, 'dropped idle connections mark nobody');
    is($nginx->peer($fake)->{state}, 'connected', 'it is connected');

    $nginx->stop;
    $fake->kill;
    return;
}
