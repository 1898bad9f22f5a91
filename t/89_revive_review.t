#!/usr/bin/perl

# Faults that a review of the revival found, each small and fixed; what a
# subtest is named after is what went wrong.

use lib 't/lib';
use IO::Uncompress::Gunzip qw(gunzip);
use MCP::Dns ();
use MCP::Exchange ();
use MCP::Fake ();
use MCP::Lost;
use MCP::Revive;
use MCP::Test;
use MCP::Util qw(json_text);

my $ka = 'mcp_keepalive zone=mcp:1m interval=1h timeout=3s';
my $on = "$ka; mcp_revive on limit=3; keepalive 4;";

subtest peer_freed_twice => \&peer_freed_twice;
subtest late_404_of_calls => \&late_404_of_calls;
subtest late_404_spends_limit => \&late_404_spends_limit;
subtest call_run_twice => \&call_run_twice;
subtest flow_in_post_action => \&flow_in_post_action;
subtest error_page_skipped => \&error_page_skipped;
subtest version_in_header => \&version_in_header;
subtest gzip_loses_bytes => \&gzip_loses_bytes;
subtest peer_resolved_just_now => \&peer_resolved_just_now;
finish();


# A peer over its rate was freed twice: max_conns was reached for ever.

sub peer_freed_twice {
    my @fakes = fakes(2);
    my $nginx = nginx(
        fakes => \@fakes,
        servers => [$fakes[0]->addr . ' max_conns=100 weight=5',
                    $fakes[1]->addr . ' max_conns=100'],
        upstream => 'mcp_keepalive zone=mcp:1m interval=1h timeout=500ms rate=5;'
                  . ' mcp_revive on limit=1000; keepalive 4;');
    my @clients = map { agent($nginx) } 1 .. 24;

    lose(@clients);

    my @all = map { $_->start_call } @clients;

    MCP::Exchange::drive(\@all, timeout => 5);

    for my $n (0 .. $#all) {
        $all[$n]->status == 200
            ? is_revived($clients[$n], $all[$n], "at once, $n: revived")
            : is_ours($all[$n], "at once, $n: told");
        cmp_ok(agent_starts($clients[$n]), '<=', 1, "at once, $n: one start");
    }

    for my $n (1 .. 4) {
        my $c = agent($nginx, open => -1);

        is($c->initialize->status, 200, "a new session, $n");
        is($c->call->status, 200, "a new session, $n: its call");
    }

    is(join("\n", $nginx->log_lines(qr/no live upstreams/)), '',
       'no peer is taken for a busy one');
    $nginx->stop;
    $_->kill for @fakes;
    return;
}


# Requests with the old id in flight, whose 404 comes late, one after another.

sub late_404 {
    my ($method, $status) = @_;

    my $fake = fake();
    my $nginx = nginx(fakes => [$fake], upstream => $on);
    my $c = lose(agent($nginx));
    my @all;

    for my $n (1 .. 5) {
        $fake->rule(when => { rpc => $method, session => $c->session },
                    do => { delay => (250 + 50 * $n) * slow() }, times => 1);
        push @all, $c->start_rpc($method);
        MCP::Exchange::drive([$all[-1]], timeout => 5, until => sub {
            return $n <= (() = requests_of($c, since => 1)) });
    }

    MCP::Exchange::drive(\@all, timeout => 5);
    is(join(' ', map { $_->status } @all), join(' ', ($status) x 5),
       'all are answered');
    is(trail($c), join(', ', ("$method old") x 5, 'initialize none',
                       'notifications/initialized new', ("$method new") x 5),
       'as the server saw it: started once');
    call_ok($c, 'the next call');
    is(agent_starts($c), 1, 'still one start');
    is($nginx->upstream->{sessions}{revived}, 1, 'counted once');
    $nginx->stop;
    $fake->kill;
    return;
}


# A 404 of the life before was taken for one of the new: started over.

sub late_404_of_calls { return late_404('tools/call', 200) }


# So it was, without proof in between: beyond the limit, then 404 for ever.

sub late_404_spends_limit {
    return late_404('notifications/progress', 202);
}


# A tool's own error that reads like a lost session: the call ran already.

sub call_run_twice {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake],
        upstream => "$ka; mcp_revive on limit=100; keepalive 4;");
    my $when = { rpc => 'tools/call', known => 1 };
    my @errors = map { { code => -32603, message => $_ } }
                 'Session not found', 'Error: tmux session not found';

    for my $do ((map { { error => $_ } } @errors),
                { status => 500, type => 'text/plain',
                  body => 'Session not found' },
                { status => 500, type => 'text/plain',
                  body => 'InvalidSession: db session not found' })
    {
        my $name = json_text($do);
        my $c = mark_trail(agent($nginx));

        $fake->rule(when => $when, do => $do);
        is_lost($c->call, $name);
        is(trail($c), 'tools/call old', "$name: ran once");
        $fake->clear;
        call_ok($c, "$name: the next call");
    }

    # an error that is not the call's own: it did not run

    my $c = mark_trail(agent($nginx));

    $fake->rule(when => $when, times => 1,
                do => { error => $errors[0], id => undef });
    call_is_revived($c, 'an error without id');
    $nginx->stop;
    $fake->kill;
    return;
}


# Heartbeats of a stream that was over went out while a post_action ran.

sub flow_in_post_action {
    my ($fake, $aside) = my @fakes = fakes(2);
    my $nginx = nginx(
        fakes => \@fakes, servers => [$fake->addr],
        upstream => "$ka; keepalive 4;", http => 'mcp_heartbeat 150ms;',
        server => 'location = /after { internal; proxy_pass_request_headers'
                . ' off; proxy_pass http://%%fake2%%; }',
        location => 'post_action /after;');
    my $c = agent($nginx, keepalive => 1, open => 0);

    $fake->rule(when => { rpc => 'tools/call' },
                do => { mode => 'sse', framing => 'chunked' });
    eventually(sub { $aside->requests >= 2 }, 'post_action runs');
    $aside->rule(do => { delay => 500, body => 'x', type => 'text/plain' });

    my $seen = () = $aside->requests;
    my $x = $c->start_call;

    MCP::Exchange::drive([$x], timeout => 3);
    is($x->status, 200, 'the call');
    is($x->server, $fake->{name}, 'its event');
    eventually(sub { $aside->requests > $seen }, 'post_action goes on');
    never(sub { length $x->{http}{buf} || sysread $x->{fh}, my ($more), 99 },
          'nothing after the end', 600);
    $nginx->stop;
    $_->kill for @fakes;
    return;
}


# A revived call's error came as it was, past the location's error_page.

sub error_page_skipped {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], upstream => $on,
        server => 'location = /page { return 200 "page"; }',
        location => 'proxy_intercept_errors on; error_page 500 /page;');
    my $c = agent($nginx);
    my $x;

    $fake->rule(when => { rpc => 'tools/call', known => 1 },
                do => { status => 500, type => 'text/plain', body => 'trace' });

    for my $lost (0, 1) {
        lose($c) if $lost;
        $x = $c->call;
        is($x->status, 500, "lost $lost: the status");
        is($x->body, 'page', "lost $lost: the page");
    }

    is(trail($c), TRAIL, 'revived, and sent once more');
    $nginx->stop;
    $fake->kill;
    return;
}


# The server's protocolVersion went into a header as it was, or did not fit.

sub version_in_header {
    my $fake = fake();
    my $nginx = nginx(fakes => [$fake], upstream => $on);

    for my $version ('2025-06-18', 'DRAFT-2026-v1', "25\r\nX-I: 1") {
        my $name = json_text($version);

        $fake->sessions(version => $version);

        my $c = lose(agent($nginx));

        call_is_revived($c, $name);

        my @seen = requests_of($c, since => 1);
        my ($second) = grep { $_->{rpc} eq 'notifications/initialized' } @seen;
        my ($sent) = MCP::Fake::values_of($second, 'MCP-Protocol-Version');

        is(scalar(grep { MCP::Fake::values_of($_, 'X-I') } @seen), 0,
           "$name: no header of the server's making");
        is($sent, $version, "$name: the header") if $version =~ /^2025/;
        ok(($sent // '2') =~ /^[\w.-]+$/, "$name: a version or none");
    }

    $nginx->stop;
    $fake->kill;
    return;
}


# Filters kept what they made of the answer that nobody got: part of a file.

sub gzip_loses_bytes {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake], upstream => $on, listen => 'sndbuf=16k',
        http => 'sendfile on; gzip on; gzip_types application/json;'
              . ' gzip_min_length 9999;',
        proxy => 'proxy_pass http://tools; proxy_http_version 1.1;'
               . ' proxy_set_header Connection ""; proxy_buffers 4 4k;'
               . ' proxy_busy_buffers_size 8k;',
        server => 'location /stream { proxy_request_buffering off;'
                . ' proxy_pass http://tools; proxy_http_version 1.1;'
                . ' proxy_set_header Connection ""; }');
    my $c = agent($nginx, headers => [['Accept-Encoding', 'gzip']]);
    my $noise = join '', map { chr 97 + rand 26 } 1 .. 200_000;
    my $body = qq({"jsonrpc":"2.0","id":7,"result":{"x":"$noise"}});

    $fake->rule(when => { rpc => 'tools/call', known => 1 },
                do => { body => $body, framing => 'chunked' });

    for my $lost (0, 1) {
        known_lost($c) if $lost;

        # it reads nothing until the rest lies in a file

        my $x = $c->start_call;

        $x->put;
        pause_ms(300 * slow());
        MCP::Exchange::drive([$x], timeout => 5);
        is($x->header('Content-Encoding'), 'gzip', "lost $lost: zipped");

        my $zipped = $x->body;

        gunzip(\$zipped => \my $text);
        ok($text eq $body, "lost $lost: whole") or diag(length $text);
    }

    is(trail($c), 'initialize none, notifications/initialized new,'
       . ' tools/call new', 'revived before it was sent');
    ok(scalar $nginx->log_lines(qr{to a temporary file}), 'there was a file');
    $nginx->stop;
    $fake->kill;
    return;
}


# A request that cannot be sent again is told: the next one waits at once.

sub known_lost {
    my ($c) = @_;

    lose($c);

    local $c->{uri} = '/stream';

    is($c->rpc('tools/call', { x => 'y' x 80_000 })->status, 404, 'streamed');
    mark_trail($c);
    return;
}


# An address that no request had used yet was nobody: never revived there.

sub peer_resolved_just_now {
    return plan(skip_all => 'no "resolve" in this nginx')
        if MCP::Nginx::version() < 1_027_003;

    my $one = fake(host => '127.0.0.2');
    my $two = fake(host => '127.0.0.3', port => $one->{port});
    my $dns = MCP::Dns->new('127.0.0.2');
    my $nginx = nginx(
        fakes => [$one, $two], servers => ["mcp.test:$one->{port} resolve"],
        http => 'resolver ' . $dns->addr . ' valid=1s ipv6=off;',
        upstream => "zone tools 128k; $on");
    my $c;

    eventually(sub { $c = agent($nginx); return defined $c->session },
               'there is an address');
    $dns->set('127.0.0.3');
    pause_ms(2200);
    $one->kill;
    mark_trail($c);
    eventually(sub { $c->call->status == 200 }, 'revived at the new address');
    call_ok($c, 'there it stays');
    is(agent_starts($c), 1, 'one start');
    cmp_ok(scalar $two->requests(rpc => 'tools/call'), '>=', 2,
           'the calls are there');
    $nginx->stop;
    $two->kill;
    return;
}
