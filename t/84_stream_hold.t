#!/usr/bin/perl

# A client's GET while its server is away is held by a stream of our own, until
# the server is back, the time is over or the worker leaves.

use lib 't/lib';
use MCP::Test;

my $drain = 2000;

back();
over();
leaves();
client_leaves();
not_held();
http2();
finish();


sub up {
    my ($fake, %parts) = @_;

    return nginx(
        fakes => [$fake],
        upstream => 'mcp_keepalive zone=mcp:1m interval=200ms;'
                  . " mcp_reconnect drain=${drain}ms backoff=200ms"
                  . ' backoff_max=200ms budget=1000 initial=1000;',
        location => 'mcp_heartbeat 200ms; ' . ($parts{location_more} // ''),
        %parts);
}


sub away {
    my ($nginx, $fake) = @_;

    $fake->refuse(drop => 1);
    eventually(sub { $nginx->peer($fake)->{state} =~ /degraded|parked/ },
               'the server is away');
    return;
}


sub heads {
    my (@x) = @_;

    MCP::Exchange::drive(\@x, timeout => 5, until => sub {
        return !grep { $_->body !~ /:\n\n/ } @x;
    });
    return;
}


sub down {
    my ($nginx, $fake) = @_;

    $nginx->stop;
    $fake->kill;
    return;
}


sub back {
    my $fake = fake();
    my $nginx = up($fake, workers => 2);
    my @clients = clients($nginx, 60, keepalive => 1);

    each_client(\@clients, [qw(initialize initialized call)]);
    away($nginx, $fake);

    my @x = map { $_->start_get } @clients;

    heads(@x);
    is(scalar(grep { $_->status != 200
                     || $_->header('Content-Type') ne 'text/event-stream' } @x),
       0, 'held: an event stream');
    eventually(sub { $nginx->upstream->{streams}{held} == @x }, 'counted');

    MCP::Exchange::drive(\@x, timeout => 1);
    is(scalar(grep { $_->over } @x), 0, 'none has ended');
    is(scalar(grep { $_->body !~ /^(?::\n\n){3,}$/ } @x), 0, 'heartbeats');

    $fake->accept;
    eventually(sub { $nginx->peer($fake)->{state} eq 'connected' },
               'the server is back');

    my $back = now_ms();

    MCP::Exchange::drive(\@x, timeout => 5);

    # an end at a random time, and a second later within drain

    my @bad = grep { $_->{failed} || $_->body !~ /^(?::\n\n)+retry: 1000\n\n$/ }
              @x;

    is(scalar @bad, 0, 'each gets a retry and a proper end')
        or diag(map { ($_->{failed} // '') . ' ' . $_->body . "\n" } @bad);

    my @ended = sort { $a <=> $b } map { $_->{ended} } @x;

    cmp_ok($ended[-1] - $ended[0], '>', $drain / 3, 'spread');
    cmp_ok($ended[-1] + 1000 - $back, '<', $drain + 300 * slow(),
           'all clients are to be back within drain');
    eventually(sub { $nginx->upstream->{streams}{held} == 0 }, 'none is held');

    $clients[0]->settle($x[0]);
    ok($clients[0]{fh}, 'the connection can be used again');
    is($clients[0]->call->status, 200, '... and is');

    return down($nginx, $fake);
}


sub over {
    my $fake = fake();
    my $nginx = up($fake, location_more => 'mcp_stream_hold 700ms;');
    my $c = client($nginx);

    $c->open_session(1);
    away($nginx, $fake);

    my $x = $c->start_get;

    MCP::Exchange::drive([$x], timeout => 5);
    ok(!$x->{failed}, 'over: a proper end');
    like($x->body, qr/^(?::\n\n){2,}retry: \d+\n\n$/, 'over: with a retry');
    cmp_ok($x->ms, '>=', 650, 'over: not before');

    return down($nginx, $fake);
}


sub leaves {
    my $fake = fake();
    my $nginx = up($fake, workers => 2);
    my @clients = clients($nginx, 20);

    each_client(\@clients, [qw(initialize initialized call)]);
    away($nginx, $fake);

    my @x = map { $_->start_get } @clients;

    heads(@x);
    $nginx->reload;
    MCP::Exchange::drive(\@x, timeout => 5);
    is(scalar(grep { $_->{failed} || $_->body !~ /retry: \d+\n\n$/ } @x), 0,
       'the worker leaves: a retry and a proper end');
    eventually(sub { $nginx->workers == 2 }, 'and it is gone');

    return down($nginx, $fake);
}


sub client_leaves {
    my $fake = fake();
    my $nginx = up($fake);
    my $c = client($nginx);

    $c->open_session(1);
    away($nginx, $fake);

    my @x = map { $c->start_get } 1 .. 10;

    heads(@x);
    $_->abort(reset => $_ % 2) for @x;
    eventually(sub { $nginx->upstream->{streams}{held} == 0 },
               'clients that leave are not held', 2);

    # one that leaves at once

    $x[0] = $c->start_get;
    MCP::Exchange::drive([$x[0]], timeout => 0);
    $x[0]->abort(reset => 1);
    eventually(sub { $nginx->connections == 1 }, 'nor is one that hurries');

    return down($nginx, $fake);
}


sub not_held {
    my $fake = fake();
    my $nginx = up($fake, server => 'location /off { proxy_pass http://tools;'
                                  . ' mcp_stream_hold off; }');
    my $c = client($nginx);

    $c->open_session(1);
    away($nginx, $fake);

    for my $case (['mcp_stream_hold off', $c, '/off', 'get'],
                  ['a POST', $c, '/mcp', 'call'],
                  ['a session that we do not know', client($nginx), '/mcp',
                   'get'])
    {
        my ($name, $client, $uri, $method) = @$case;
        my $start = "start_$method";

        local $client->{uri} = $uri;
        local $client->{session} = $client->{session} // 'unknown';

        my $x = $client->$start;

        MCP::Exchange::drive([$x], timeout => 5);
        cmp_ok($x->status, '>=', 500, "$name: is not held");
    }

    return down($nginx, $fake);
}


sub http2 {
  SKIP: {
    skip('no nghttp', 1) unless grep { -x "$_/nghttp" } split /:/, $ENV{PATH};

    my $fake = fake();
    my $nginx = up($fake, listen => 'http2',
                   server => 'listen 127.0.0.1:%%port1%%;',
                   location_more => 'mcp_stream_hold 700ms;');
    my $c = client($nginx, port => $nginx->port(1));

    $c->open_session(1);
    away($nginx, $fake);

    my $url = 'http://127.0.0.1:' . $nginx->port . '/mcp';
    my $session = $c->session;
    my $text = `nghttp --timeout=5 -H 'mcp-session-id: $session' $url 2>&1`;

    like($text, qr/^(?::\n\n){2,}retry: \d+\n\n$/, 'HTTP/2: held');

    down($nginx, $fake);
  }

    return;
}
