#!/usr/bin/perl

# How streams end: by a worker that leaves, by the server, by a reset.  Nobody
# is cut off without a word, and no running call is touched.
#
# MCP_STREAMS: how many notification streams (200).  MCP_LONG=1: 1,000, a drain
# of 5 s, calls of 10 s.

use lib 't/lib';
use MCP::Test;

use IO::Select ();

my $long = $ENV{MCP_LONG} ? 1 : 0;
my $streams = $ENV{MCP_STREAMS}
              // ($long ? 1000 : $ENV{MCP_VALGRIND} ? 40 : 200);
my $calls = 20;
my $call_ms = $long ? 10_000 : 3500;
my $drain = $long ? 5000 : 2000;

leaves('reload');
leaves('quit');
hurried();
late();
in_an_event();
subscription();
drain_off();
server_ends();
finish();


sub up {
    my ($fake, %parts) = @_;

    return nginx(fakes => [$fake],
                 upstream => 'mcp_keepalive zone=mcp:1m interval=off;'
                           . " mcp_reconnect drain=${drain}ms;",
                 location => 'mcp_heartbeat 300ms;', connections => 4096,
                 %parts);
}


sub chunked { return sprintf("%x\r\n%s\r\n", length $_[0], $_[0]) }


sub stream {
    my ($first, @more) = @_;

    return [join('', "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n",
                 "Transfer-Encoding: chunked\r\n\r\n",
                 $first eq '' ? '' : chunked($first)),
            map({ /^\d+$/ ? [$_] : chunked($_) } @more), "0\r\n\r\n"];
}


# ---- a worker that leaves ----

# worker_shutdown_timeout is shorter than drain: it cuts nobody.

sub hurried {
    my $fake = fake();
    my $nginx = up($fake, workers => 2, main => 'worker_shutdown_timeout 2s;',
                   upstream => 'mcp_keepalive zone=mcp:1m interval=off;'
                             . ' mcp_reconnect drain=30s;');
    my @clients = clients($nginx, 40);

    each_client(\@clients, [qw(initialize initialized)]);

    my @x = map { $_->start_get } @clients;

    MCP::Exchange::drive(\@x, timeout => 20, until => sub {
        return !grep { !$_->{http}->has_head } @x;
    });
    $nginx->signal('HUP');
    MCP::Exchange::drive(\@x, timeout => 5);

    my @bad = grep { $_->{failed}
                     || without($_->body) !~ /^retry: \d+\n\n$/ } @x;

    is(scalar @bad, 0, 'hurried: every client gets a retry and a proper end')
        or diag($bad[0]{failed} // $bad[0]->body);
    $nginx->stop;
    $fake->kill;
    return;
}


sub leaves {
    my ($how) = @_;

    my $fake = fake();
    my $nginx = up($fake, workers => 2);
    my @clients = clients($nginx, $streams);
    my @callers = clients($nginx, $calls);

    # in the default run a call ends while the others do, or after them
    $fake->rule(when => { rpc => 'tools/call' }, do => {
        raw => stream('', $call_ms, "data: {\"done\":1}\n\n") });

    each_client([@clients, @callers], [qw(initialize initialized)]);

    my @x = map { $_->start_get } @clients;
    my @calls = map { $_->start_call } @callers;
    my @all = (@x, @calls);

    MCP::Exchange::drive(\@all, timeout => 20, until => sub {
        return !grep { !$_->{http}->has_head } @all;
    });
    eventually(sub { $nginx->upstream->{streams}{open} == @all },
               "$how: all are open");

    my @old = $nginx->workers;
    my $from = now_ms();

    $nginx->signal($how eq 'quit' ? 'QUIT' : 'HUP');

    MCP::Exchange::drive(\@all, timeout => 20);

    # ---- each got its word ----

    my @bad = grep { $_->{failed}
                     || without($_->body) !~ /^retry: \d+\n\n$/ } @x;

    is(scalar @bad, 0, "$how: every client gets a retry and a proper end")
        or diag(map { ($_->{failed} // '') . ' ' . $_->body . "\n" }
                    @bad[0 .. ($#bad < 3 ? $#bad : 3)]);

    my @late = grep { $_->{ended} - $from > $drain + 700 * slow() } @x;

    is(scalar @late, 0, "$how: within drain");

    my @retry = map { $_->body =~ /retry: (\d+)/ ? $1 : 0 } @x;
    my @wrong = grep { $_ < 1000 || $_ > 1000 + $drain } @retry;

    is(scalar @wrong, 0, "$how: to come back after 1 s and a share of drain");

    spread("$how: ends are spread", map { $_->{ended} } @x);
    spread("$how: reopenings are spread",
           map { $x[$_]{ended} + $retry[$_] } 0 .. $#x);

    # ---- and no call was touched ----

    my @broken = grep { $_->{failed}
                        || without($_->body) ne "data: {\"done\":1}\n\n"
                      } @calls;

    is(scalar @broken, 0, "$how: every call is complete")
        or diag(map { ($_->{failed} // '') . ' ' . $_->body . "\n" } @broken);

    my $beats = () = join('', map { $_->body } @calls) =~ /:\n\n/g;

    cmp_ok($beats, '>=', 3 * $calls, "$how: with heartbeats until the end");

    my %old = map { $_ => 1 } @old;

    eventually(sub { !grep { $old{$_} } $nginx->workers },
               "$how: the old workers have gone", 5);

    if ($how eq 'reload') {
        my $count = $nginx->upstream->{streams};

        is($count->{closed_by_exit}, $streams, "$how: counted");
        is($count->{opened}, @all, "$how: opened");
        is($count->{open}, 0, "$how: none is open");
    }

    $nginx->stop;
    $fake->kill;
    return;
}


sub without { return $_[0] =~ s/:\n\n//gr }


# No fifth of the time, and of a long one no second, has many more than its share.

sub spread {
    my ($name, @times) = @_;

    my ($min, $max) = (sort { $a <=> $b } @times)[0, -1];
    my $part = $long ? 1000 : ($max - $min + 1) / 5;
    my $share = @times * $part / ($max - $min + 1);
    my @count = (0) x (1 + ($max - $min) / $part);

    $count[($_ - $min) / $part]++ for @times;

    my ($most) = sort { $b <=> $a } @count;

    cmp_ok($most, '<=', 1.5 * $share + 3 * sqrt $share, $name)
        or diag("@count");
    diag("$name, each second: @count") if $long;
    return;
}


# A stream whose header comes when the worker is leaving already.

sub late {
    my $fake = fake();
    my $nginx = up($fake);
    my $c = client($nginx);

    $c->open_session(1);
    $fake->rule(when => { method => 'GET' }, times => 1,
                do => { delay => 1000 });

    my $x = $c->start_get;

    MCP::Exchange::drive([$x], timeout => 0.2);
    $nginx->reload;
    MCP::Exchange::drive([$x], timeout => 5);
    ok(!$x->{failed}, 'late: a proper end');
    like($x->body, qr/^:\n\n(?::\n\n)*retry: \d+\n\n$/, 'late: with a retry');
    eventually(sub { $nginx->workers == 1 }, 'late: the old worker has gone');

    $nginx->stop;
    $fake->kill;
    return;
}


# Half an event was sent.  The rest may come in a moment; it may not.

sub in_an_event {
    my $fake = fake();
    my $nginx = up($fake, upstream => 'mcp_keepalive zone=mcp:1m interval=off;'
                                    . ' mcp_reconnect drain=100ms;');
    my @clients = clients($nginx, 2);

    each_client(\@clients, [qw(initialize initialized)]);

    my @x = map { $_->get } @clients;

    for my $c (@clients) {
        $fake->push_text("data: 1\n", $c->session);
    }

    MCP::Exchange::drive(\@x, timeout => 3, until => sub {
        return !grep { $_->body !~ /data: 1\n$/ } @x;
    });

    my $from = now_ms();

    $nginx->signal('HUP');
    eventually(sub { $nginx->log_lines(qr/gracefully shutting down/) },
               'in an event: the worker leaves');
    $fake->push_text("\n", $clients[0]->session);
    MCP::Exchange::drive(\@x, timeout => 5);

    like($x[0]->body, qr/data: 1\n\n(?::\n\n)*retry: \d+\n\n$/,
         'in an event: it is finished first');
    like($x[1]->body, qr/data: 1\n$/,
         'in an event: just an end, if the rest does not come');
    ok(!(grep { $_->{failed} } @x), 'in an event: a proper one');

    $nginx->stop;
    $fake->kill;
    return;
}


# A subscription ends with a result.

sub subscription {
    my $fake = fake();
    my $nginx = up($fake);
    my @headers = (['MCP-Protocol-Version', '2026-07-28'],
                   ['Mcp-Method', 'subscriptions/listen']);
    my $first = "data: {\"method\":\"notifications/subscriptions/acknowledged\""
                . "}\n\n";

    $fake->rule(when => { rpc => 'subscriptions/listen' }, do => {
        raw => stream($first, 9000, "data: 9\n\n") });

    my @x = map { client($nginx)->start_rpc('subscriptions/listen',
                                            { pad => 'x' x $_ }, @headers) }
            0, 30_000;

    MCP::Exchange::drive(\@x, timeout => 3, until => sub {
        return !grep { $_->body !~ /acknowledged/ } @x;
    });
    $nginx->reload;
    MCP::Exchange::drive(\@x, timeout => 5);

    my $json = $x[0]->json;

    is_deeply($json, { jsonrpc => '2.0', id => 1, result => {
        resultType => 'complete',
        _meta => { 'io.modelcontextprotocol/subscriptionId' => 1 } } },
        'subscription: the result that completes it');
    unlike($x[0]->body, qr/retry/, 'subscription: no retry');
    is(without($x[1]->body), $first, 'subscription: just an end, '
                                     . 'if the request is not in memory');
    ok(!(grep { $_->{failed} } @x), 'subscription: a proper end');

    $nginx->stop;
    $fake->kill;
    return;
}


sub drain_off {
    my $fake = fake();
    my $nginx = up($fake, upstream => 'mcp_keepalive zone=mcp:1m interval=off;'
                                    . ' mcp_reconnect drain=off;');
    my $c = client($nginx);

    $c->open_session(1);

    my $x = $c->get;
    my ($old) = $nginx->workers;

    $nginx->reload;

    my $length = length $x->body;

    MCP::Exchange::drive([$x], timeout => 1.5);
    ok(!$x->over, 'drain=off: the stream stays');
    cmp_ok(length $x->body, '>', $length, 'drain=off: with heartbeats');
    is(scalar(grep { $_ == $old } $nginx->workers), 1,
       'drain=off: and the worker with it');
    $x->abort;
    eventually(sub { !grep { $_ == $old } $nginx->workers },
               'drain=off: until the client leaves');

    $nginx->stop;
    $fake->kill;
    return;
}


# ---- the server ----

sub server_ends {
    my $fake = fake();
    my $nginx = up($fake);
    my $c = client($nginx);
    my $head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
    my $chunk = "Transfer-Encoding: chunked\r\n\r\n" . chunked("data: 1\n\n");

    $c->open_session(1);

    for my $case (['its last chunk', 1, raw => [$head . $chunk, "0\r\n\r\n"]],
                  ['no last chunk', 0, raw => [$head . $chunk, [50]]],
                  ['a reset', 0, raw => [$head . $chunk, [50]], reset => 'raw'],
                  ['a broken chunk', 0, raw => [$head . $chunk, "xyz\r\n"]],
                  ['the end of the connection', 1,
                   raw => [$head . "\r\ndata: 1\n\n"]])
    {
        my ($name, $proper, %do) = @$case;

        for my $method (qw(get call)) {
            my $start = "start_$method";

            $fake->rule(times => 1, do => \%do, when => { keepalive => 0 });

            my $x = $c->$start;

            MCP::Exchange::drive([$x], timeout => 5);
            is(without($x->body), "data: 1\n\n", "$name, $method: all bytes");
            is($x->{failed} ? 0 : 1, $proper, "$name, $method: "
               . ($proper ? 'a proper end' : 'no proper end'));
        }
    }

    eventually(sub { $nginx->upstream->{streams}{open} == 0 },
               'no stream is open');

    my $x = $c->get;

    $x->abort;
    eventually(sub { $nginx->peer($fake)->{stream_ends}{count} == 11 },
               'eleven have ended');

    my $ends = $nginx->peer($fake)->{stream_ends};
    my %ends = map { $_ => $ends->{$_} }
               grep { $_ ne 'count' && $_ ne 'age_ms' && $ends->{$_} }
               keys %$ends;

    is_deeply(\%ends, { server => 4, cut => 6, client => 1 },
              'by the server, cut by it, by the client');
    cmp_ok($ends->{age_ms}, '>=', 100, 'their ages are added up');

    $nginx->stop;
    $fake->kill;
    return;
}
