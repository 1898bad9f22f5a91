#!/usr/bin/perl

# What one whose task was to break the module has broken: each subtest once
# failed, most of them with a worker that died.

use strict;
use warnings;

use lib 't/lib';

use IO::Select;
use IO::Socket::INET;
use MCP::Revive;
use MCP::Test;

my $stream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
           . "Transfer-Encoding: chunked\r\n\r\n";

subtest "a first packet that ends in a chunk's size, $_->[0]" => sub {
    half_chunk(@$_);
} for ['a reload', \&reload], ['a mark', \&mark];

subtest 'a held stream without chunks is closed at its end' => \&held_end;
subtest 'a GET is not held for a peer that is full, or down' => \&not_away;
subtest 'who leaves while waiting for a revival is a 499' => \&leaves;

finish();


sub half_chunk {
    my ($name, $then) = @_;

    for my $first ("5\r\n", '5', '') {
        my $fake = fake();
        my $nginx = nginx(
            fakes => [$fake], workers => 1, location => 'mcp_heartbeat 200ms;',
            upstream => 'mcp_keepalive zone=mcp:1m interval=1h;'
                      . ' mcp_reconnect drain=400ms;');
        my $c = client($nginx);

        $c->open_session(2);
        $fake->rule(when => { method => 'GET' },
                    do => { keep => 'raw', raw => $stream . $first });

        my $x = $c->start_get;

        MCP::Exchange::drive([$x], timeout => 2, until => sub {
            return $x->{http} && $x->{http}->has_head });
        ok($x->{http} && $x->{http}->has_head, 'the client has the head');
        $then->($nginx, $fake, $c);
        MCP::Exchange::drive([$x], timeout => 2);
        is(scalar $nginx->log_lines(qr/exited on signal/), 0,
           "$name: no worker has died");
        $nginx->stop;
        $fake->kill;
    }

    return;
}


sub reload {
    my ($nginx) = @_;

    $nginx->reload(gone => 1);
    return;
}


sub mark {
    my ($nginx, $fake, $c) = @_;

    $fake->refuse;
    client($nginx, session => $c->session)->call for 1, 2;
    return;
}


sub held_end {
    for my $case (['1.0', ''], ['1.1', 'chunked_transfer_encoding off;']) {
        my ($version, $location) = @$case;
        my $fake = fake();
        my $nginx = nginx(
            fakes => [$fake], workers => 1, location => $location,
            http => 'mcp_stream_hold 500ms; keepalive_timeout 20s;',
            upstream => 'mcp_keepalive zone=mcp:1m interval=1h;'
                      . ' mcp_reconnect drain=200ms;');
        my $c = client($nginx);

        $c->open_session(1);
        $fake->kill;
        $c->call;

        my $fh = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => $nginx->port);

        print {$fh} "GET /mcp HTTP/$version\r\nHost: x\r\n"
                  . "Connection: keep-alive\r\nAccept: text/event-stream\r\n"
                  . 'Mcp-Session-Id: ' . $c->session . "\r\n\r\n";
        $fh->flush;

        my ($all, $eof) = ('', 0);

        eventually(sub {
            IO::Select->new($fh)->can_read(0.1) or return 0;
            $eof = !sysread $fh, $all, 65536, length $all;
            return $eof;
        }, "HTTP/$version $location closed", 5);
        like($all, qr/retry: \d+\n\n\z/, 'after the last words');
        $nginx->stop;
    }

    return;
}


sub not_away {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], servers => [$fake->addr . ' max_conns=1'],
        workers => 1, upstream => 'mcp_keepalive zone=mcp:1m interval=1h;');
    my $c = client($nginx);

    $c->open_session(2);

    my $stream = client($nginx, session => $c->session)->start_get;

    MCP::Exchange::drive([$stream], timeout => 2, until => sub {
        return $stream->{http} && $stream->{http}->has_head });
    is($c->get->status, 503, 'full');
    $stream->abort;

    $nginx->reload(gone => 1,
                   parts => { servers => [$fake->addr . ' down'] });
    is($c->get->status, 503, 'down');
    $nginx->stop;
    $fake->kill;
    return;
}


sub leaves {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], workers => 1,
        upstream => 'mcp_keepalive zone=mcp:1m interval=1h timeout=3s;'
                  . ' mcp_revive on;');
    my $c = agent($nginx);

    lose($c);
    $fake->rule(when => { rpc => 'initialize' }, times => 1,
                do => { status => 403, body => '' });
    $c->call;               # lost, and known to be

    $fake->rule(when => { rpc => 'initialize' }, do => { hang => 1 });

    my $x = $c->start_call;

    MCP::Exchange::drive([$x], timeout => 2, until => sub {
        return scalar(() = $fake->requests(rpc => 'initialize')) >= 3 });
    $x->abort;
    eventually(sub { grep { /" 499 / } $nginx->access_lines },
               'logged as one that left', 5);
    is(scalar(grep { /" 500 / } $nginx->access_lines), 0, 'not as a fault');
    $nginx->stop;
    $fake->kill;
    return;
}
