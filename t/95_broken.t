#!/usr/bin/perl

# More of what one has broken whose task it was: each subtest once failed.

use strict;
use warnings;

use lib 't/lib';

use MCP::Test;

my $forward = 'proxy_pass http://tools; proxy_http_version 1.1;'
            . ' proxy_set_header Connection "";';

subtest 'an initialize whose own id is none starts a session' => \&bad_id;
subtest 'peers that are gone make room' => \&gone;
subtest 'so do those of an upstream that is gone' => \&renamed;
subtest 'what is told of a peer that is gone is not of the next' => \&late;
subtest 'a call goes on without its client, as it was told' => \&unheard;
subtest '... and that of a client that was slow' => \&slow_one;
subtest "a cache does not keep the server's id of a revived session" => \&cache;
subtest 'among many peers one is tried at once' => \&many;

finish();


sub bad_id {
    my @fakes = fakes(3);
    my $nginx = nginx(fakes => \@fakes, workers => 2, upstream =>
                      'mcp_keepalive zone=mcp:1m interval=1h; keepalive 4;');
    my %bad = (empty => [['Mcp-Session-Id', '']],
               space => [['Mcp-Session-Id', 'a b']],
               two => [map { ['Mcp-Session-Id', $_] } 'x1', 'x2']);

    for my $name (sort keys %bad) {
        my @status;

        for (1 .. 3) {
            my $c = client($nginx);

            push @status, $c->initialize(@{ $bad{$name} })->status,
                          map { $c->call->status } 1 .. 4;
        }

        is("@status", join(' ', (200) x 15), "$name: pinned");
    }

    is(misrouted(@fakes), 0, 'each at its server');
    $nginx->stop;
    $_->kill for @fakes;
    return;
}


sub misrouted {
    my $sum = 0;

    $sum += $_->stats->{misrouted} for @_;
    return $sum;
}


# Addresses that were configured once would fill the zone three times over.

sub gone {
    my $anywhere = fake(host => '0.0.0.0');
    my @fakes = fakes(2);
    my @lists = map { my $net = $_;
                      [map { "127.0.$net.$_:$anywhere->{port}" } 1 .. 40]
                    } 1 .. 4;
    my $nginx = nginx(fakes => \@fakes, servers => $lists[0], upstream =>
                      'mcp_keepalive zone=mcp:64k interval=1h; keepalive 4;');

    $nginx->reload(gone => 1, parts => { servers => $_ })
        for @lists[1 .. 3], [map { $_->addr } @fakes];

    my @clients = clients($nginx, 40);
    my @x = each_client(\@clients, [qw(initialize initialized call call)],
                        width => 4);

    is(scalar(grep { $_->status !~ /^20[02]$/ } @x), 0, 'all calls are right');
    is($nginx->status->{zones}{mcp}{untracked}, 0, 'every session is known');
    is(scalar $nginx->log_lines(qr/no room/), 0, 'there was room');
    $nginx->stop;
    $_->kill for $anywhere, @fakes;
    return;
}


sub renamed {
    my $anywhere = fake(host => '0.0.0.0');
    my $fake = fake();
    my $upstream = sub {
        my ($net) = @_;

        return "upstream u$net { mcp_keepalive zone=mcp interval=1h;"
             . join('', map { "server 127.0.$net.$_:$anywhere->{port};" }
                        1 .. 40) . ' }';
    };
    my $nginx = nginx(fakes => [$fake], http => $upstream->(1),
                      upstream => 'mcp_keepalive zone=mcp:64k interval=1h;');

    $nginx->reload(gone => 1, parts => { http => $upstream->($_) })
        for 2 .. 5;
    is(scalar $nginx->log_lines(qr/no room/), 0, 'there was room');
    $nginx->stop;
    $_->kill for $anywhere, $fake;
    return;
}


# Calls without sessions are answered by servers that are not configured any
# more, whose places in the zone others have by then.

sub late {
    my $anywhere = fake(host => '0.0.0.0');
    my @lists = map { my $net = $_;
                      [map { "127.0.$net.$_:$anywhere->{port}" } 1 .. 60]
                    } 1, 2;
    my $nginx = nginx(fakes => [$anywhere], servers => $lists[0], upstream =>
                      'mcp_keepalive zone=mcp:64k interval=1h; keepalive 4;');

    $anywhere->rule(when => { rpc => 'tools/call' }, do => {
        delay => 1500, status => 200, no_echo => 1, type => 'application/json',
        body => '{"jsonrpc":"2.0","id":1,"result":{}}' });

    my @x = map { client($nginx)->start_call } 1 .. 30;

    MCP::Exchange::drive(\@x, timeout => 0.3);
    $nginx->reload(parts => { servers => $lists[1] });
    MCP::Exchange::drive(\@x, timeout => 8);
    is(scalar(grep { $_->status == 200 } @x), 30, 'all are answered');
    is(scalar(grep { $_->{state} ne 'connecting' && !$_->{gone} }
              @{ $nginx->upstream->{peers} }), 0, 'nobody else is proven by it');
    $nginx->stop;
    $anywhere->kill;
    return;
}


sub slow_one {
    my $fake = fake();
    my $nginx = nginx(fakes => [$fake],
                      proxy => "$forward proxy_ignore_client_abort on;",
                      upstream => 'mcp_keepalive zone=mcp:1m interval=1h;');
    my $c = client($nginx);
    my $event = 'data: ' . 'x' x 60_000 . "\n\n";

    $c->open_session(1);
    $fake->rule(when => { rpc => 'tools/call' }, do => { raw => [
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        . "Content-Length: " . 200 * length($event) . "\r\n\r\n",
        ($event) x 200] });

    my $x = $c->start_call;

    # it reads nothing until nginx can write no more, and is gone

    pause_ms(700);
    $x->abort(reset => 1);
    eventually(sub { $nginx->upstream->{streams}{open} == 0 },
               'the call comes to its end', 5);
    $nginx->stop;
    $fake->kill;
    return;
}


sub unheard {
    my $fake = fake();
    my $nginx = nginx(fakes => [$fake], location => 'mcp_heartbeat 200ms;',
                      proxy => "$forward proxy_ignore_client_abort on;",
                      upstream => 'mcp_keepalive zone=mcp:1m interval=1h;');
    my $c = client($nginx);
    my $chunk = sub { return sprintf "%x\r\n%s\r\n", length $_[0], $_[0] };

    $c->open_session(1);
    $fake->rule(when => { rpc => 'tools/call' }, do => { raw => [
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        . "Transfer-Encoding: chunked\r\n\r\n" . $chunk->("data: 1\n\n"),
        (map { [600], $chunk->("data: $_\n\n") } 2, 3), "0\r\n\r\n"] });

    my $x = $c->start_call;

    MCP::Exchange::drive([$x], timeout => 2, until => sub { $x->body =~ /1/ });
    $x->abort;

    my $conn = ($fake->requests(rpc => 'tools/call'))[-1]{conn};
    my @end;

    eventually(sub {
        @end = grep { ($_->{conn} // '') eq $conn
                      && $_->{ev} =~ /^(?:answered|close)$/ } $fake->events;
        return @end;
    }, 'the call ends', 4);
    is($end[0]{ev}, 'answered', 'and is whole') or diag(explain(\@end));
    $nginx->stop;
    $fake->kill;
    return;
}


sub cache {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake],
        http => 'proxy_cache_path %%dir%%/cache keys_zone=c:1m;',
        upstream => 'mcp_keepalive zone=mcp:1m interval=1h; mcp_revive on;'
                  . ' keepalive 4;',
        server => "location /plain { $forward }",
        proxy => $forward, location => 'proxy_cache c;'
               . ' proxy_cache_methods GET POST; proxy_cache_valid 200 1h;'
               . ' proxy_cache_key "$request_body$http_mcp_session_id";');
    my $c = client($nginx);

    $c->open_session(1);

    my $own = $c->session;

    $fake->forget;
    $c->{uri} = '/plain';
    is($c->call->status, 200, 'revived');
    $c->{uri} = '/mcp';

    for (1 .. 3) {
        $c->{id} = 100;             # the same body

        my $x = $c->wait($c->start_list);

        is($x->status, 200, 'answered');
        is($x->header('Mcp-Session-Id'), $own, "with the client's id");
        $c->{session} = $own;
    }

    $nginx->stop;
    $fake->kill;
    return;
}


sub many {
    my $anywhere = fake(host => '0.0.0.0');
    my $fake = fake();
    my @servers = map { my $net = $_;
                        map { "127.0.$net.$_:$anywhere->{port}" } 1 .. 200
                      } 1 .. 3;
    my $nginx = nginx(
        fakes => [$fake], servers => [$fake->addr, @servers],
        upstream => 'mcp_keepalive zone=mcp:4m interval=1h; keepalive 4;');
    my $c = client($nginx);

    $c->initialize;
    is($c->call->server, $fake->{name}, 'a session there');
    $fake->kill;

    my $from = now_ms();

    $c->call;
    eventually(sub { ($nginx->peer($fake)->{attempts} // 0) > 0 },
               'it is tried', 5);
    cmp_ok(now_ms() - $from, '<', 1500 * slow(), 'soon');
    $nginx->stop;
    $_->kill for $anywhere, $fake;
    return;
}
