#!/usr/bin/perl

# The module's own 404 and 503: what may stand in a location and does not
# change them, what comes before them, every method, HTTP/2, the access log.
#
#   pair    the first peer refuses, another is usable: 404 from the gate
#   spare   the other one is a backup: 404
#   late    the same with failover=parked: each meets the refusal, 503
#   lone    nobody else, degraded: each meets the refusal, 503
#   parked  nobody else, parked: 503 from the gate

use lib 't/lib';
use MCP::H2;
use MCP::Lost;
use MCP::Peers;
use MCP::Test;

my ($dead, $live) = my @fakes = fakes(2);
my $keepalive = 'mcp_keepalive zone=mcp interval=200ms;';
my $forever = 'mcp_reconnect budget=100000 backoff=5s backoff_max=5s;';

my %upstream = (
    pair => "server %%fake1%%; server %%fake2%%; $keepalive $forever",
    spare => "server %%fake1%%; server %%fake2%% backup; $keepalive $forever",
    late => "server %%fake1%%; server %%fake2%%; $keepalive $forever"
          . ' mcp_pin on failover=parked;',
    lone => "server %%fake1%%; $keepalive $forever",
    parked => "server %%fake1%%; $keepalive"
            . ' mcp_reconnect budget=1 backoff=100ms park=20s;',
);

# what may stand in the location; undef: nginx's own status comes first

my $cors = "add_header Access-Control-Allow-Origin '*' always;"
         . ' add_header X-Plain plain;';
my %setting = (
    plain => '',
    caught => 'proxy_intercept_errors on; error_page 404 502 503 504 = /page;',
    page => 'error_page 404 502 503 504 /page; recursive_error_pages on;',
    named => 'error_page 404 502 503 504 = @other;',
    next => 'proxy_next_upstream error timeout invalid_header non_idempotent'
          . ' http_404 http_500 http_502 http_503 http_504;',
    cors => $cors,
    stream => 'proxy_request_buffering off;',
    buffered => 'proxy_buffering on; gzip on; gzip_min_length 1;'
              . ' gzip_types application/json;',
    ok => 'auth_request /yes;',
    denied => 'deny all;',
    basic => 'auth_basic "x"; auth_basic_user_file %%dir%%/users;',
    asked => 'auth_request /no;',
);
my %first = (denied => 403, basic => 401, asked => 403);

my $proxy = 'proxy_http_version 1.1; proxy_set_header Connection "";'
          . ' proxy_pass http://';

my $nginx = nginx(
    fakes => \@fakes, servers => [$live->addr], workers => 2,
    upstream => 'mcp_keepalive zone=mcp:1m interval=1h;',
    http => hold_off()
          . 'log_format tagged "$status $http_x_tag";'
          . join('', map { "upstream $_ { $upstream{$_} keepalive 4; }\n" }
                     sort keys %upstream)
          . 'server { listen 127.0.0.1:%%port2%% http2;'
          . locations(qw(plain caught)) . ' }',
    server => 'access_log %%dir%%/tagged.log tagged;'
            . 'location = /page { return 200 "page"; }'
            . 'location @other { return 200 "other"; }'
            . 'location = /yes { return 204; }'
            . 'location = /no { return 403; }'
            . locations(sort keys %setting));

open my $users, '>', "$nginx->{dir}/users" or die "users: $!\n";
close $users;

my %client = map { $_ => pinned_to_dead($_) } sort keys %upstream;

eventually(sub { !grep { !in_state($nginx, $dead, 'connected', $_) }
                 keys %upstream }, 'all are proven');
$dead->refuse(drop => 1);
state_is($nginx, $dead, $_ eq 'parked' ? 'parked' : 'degraded', $_, 6, $_)
    for sort keys %upstream;

subtest $_ => \&setting, $_ for sort keys %setting;
methods();
http_2();
connection_kept();
big_body();
access_log();
truthful();
several_failures();
all_down();
back_again();
finish();


sub locations {
    return join '', map { my $setting = $_;
                          map { "location /$_/$setting { $setting{$setting}"
                                . " $proxy$_; }\n" } sort keys %upstream } @_;
}


sub pinned_to_dead {
    my ($up) = @_;

    my %at = place($nginx, 1, [$dead], uri => "/$up/plain");

    return $at{ $dead->{name} }[0];
}


# Does another peer take over, so that the answer is 404?

sub told { my ($up) = @_; return $up =~ /^(?:pair|spare)$/ }


sub at {
    my ($up, $setting, %more) = @_;

    return client($nginx, %{ $client{$up} }, uri => "/$up/$setting", %more);
}


# The right answer of an upstream.

sub is_right {
    my ($x, $up, $name, @more) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return told($up) ? is_lost($x, $name, @more)
                         : is_unavailable($x, $name, @more);
}


# ---- what stands in the location ----

sub setting {
    my ($setting) = @_;

    for my $up (sort keys %upstream) {
        my $x = at($up, $setting)->call(undef, tag("$up-$setting"));

        if (my $status = $first{$setting}) {
            is($x->status, $status, "$up: $status comes first");
            next;
        }

        my @more = $setting eq 'cors'
                   ? (['Access-Control-Allow-Origin', '*']) : ();

        is_right($x, $up, $up, @more);
        is($x->header('X-Fake'), undef, "$up: nobody else answered");
        is($x->header('Access-Control-Allow-Origin'), undef,
           "$up: none is added") unless @more;
    }

    return if $first{$setting};

    # without a session: there is somebody else, or there is not

    for my $up (sort keys %upstream) {
        my $x = client($nginx, uri => "/$up/$setting")->initialize;

        $up =~ /pair|spare|late/ ? is($x->status, 200, "$up: a new session")
                           : is_unavailable($x, "$up: a new session");
    }

    return;
}


# ---- methods ----

sub methods {
    for my $up (sort keys %upstream) {
        my $c = at($up, 'caught');
        my @id = ['Mcp-Session-Id', $c->session];

        for my $method (qw(GET DELETE PUT OPTIONS)) {
            is_right($c->request($method, undef, @id), $up, "$up, $method");
        }

        my $x = $c->request('HEAD', undef, @id);

        is($x->status, told($up) ? 404 : 503, "$up, HEAD: status");
        is($x->header('Content-Type'), 'application/json', "$up, HEAD: type");
        is($x->body, '', "$up, HEAD: no body");
        is_right($c->initialized, $up, "$up: a notification");

        $x = $c->request('POST', '[]', @id,
                         ['Content-Type', 'application/json']);
        is_right($x, $up, "$up: a batch");
    }

    return;
}


sub http_2 {
    plan_skip() or return;

    for my $up (sort keys %upstream) {
        for my $method (qw(POST GET DELETE HEAD)) {
            for my $setting (qw(plain caught)) {
                my @got = two_over_h2($nginx, at($up, $setting), $method);
                my $name = "h2: $up, $setting, $method";
                my $want = told($up) ? 404 : 503;

                is(join(' ', map { $_->{':status'} // 'none' } @got),
                   "$want $want", "$name: both on one connection");
                is($got[1]{'content-type'}, 'application/json',
                   "$name: type");
                like($got[1]{body} // '', $want == 404
                     ? qr/^\Q@{[LOST_BODY]}\E$/ : qr/"code":-32000/,
                     "$name: body") unless $method eq 'HEAD';
                like($got[1]{'retry-after'}, qr/^[1-9]\d*$/, "$name: after")
                    if $want == 503;
            }
        }
    }

    return;
}


sub plan_skip {
    return 1 if grep { -x "$_/nghttp" } split /:/, $ENV{PATH};

    diag('no nghttp, no HTTP/2');
    return 0;
}


sub connection_kept {
    for my $up (sort keys %upstream) {
        my $c = at($up, 'plain', keepalive => 1);
        my @x = map { $c->call } 1 .. 3;

        push @x, $c->request('DELETE', undef, ['Mcp-Session-Id',
                                               $c->session]);
        push @x, $c->request('HEAD', undef, ['Mcp-Session-Id', $c->session]);
        push @x, $c->call;
        is(join(' ', map { $_->{reused} } @x), '0 1 1 1 1 1',
           "$up: the client's connection is kept");
    }

    return;
}


# Longer than a buffer, and not read at all when it need not be.

sub big_body {
    for my $up (sort keys %upstream) {
        for my $setting (qw(plain stream)) {
            my $c = at($up, $setting);
            my $x = $c->start_rpc('tools/call',
                { name => 'echo', arguments => { x => 'y' x 300_000 } });

            $c->wait($x);
            is_right($x, $up, "$up, $setting: 300 kB");
        }
    }

    return;
}


# ---- the access log says what the client was told ----

sub access_log {
    my %seen = map { / / ? reverse split / / : () }
               split /\n/, MCP::Util::slurp("$nginx->{dir}/tagged.log");

    for my $up (sort keys %upstream) {
        my @wrong = grep { ($seen{"$up-$_"} // 'none') ne
                           ($first{$_} // (told($up) ? 404 : 503)) }
                    sort keys %setting;

        is("@wrong", '', "$up: \$status of the access log")
            or diag(map { "$_: " . ($seen{"$up-$_"} // 'none') . "\n" } @wrong);
    }

    return;
}


# ---- Retry-After is the time of the next attempt ----

sub truthful {
    for my $up (qw(lone parked)) {
        my $good = wait_for(sub {
            my $before = $nginx->peer($dead, $up)->{next_attempt_ms};
            my $after = at($up, 'plain')->call->header('Retry-After') // 0;

            # not in the second of an attempt
            return "$after ($before)" if $before > 1500
                && $after * 1000 > $before - 1000
                && $after * 1000 <= $before + 1500;
            return;
        }, 4, 100);

        ok($good, "$up: Retry-After is truthful");
    }

    my $stats = $nginx->upstream('parked')->{answers};

    cmp_ok($stats->{unavailable}, '>=', 10, 'counted as unavailable');
    cmp_ok($nginx->upstream('pair')->{answers}{session_lost}, '>=', 10,
           'and as session_lost');
    return;
}


# ---- not yet marked: 503, as nobody knows; then 404 ----

sub several_failures {
    my ($gone, $stays) = my @two = fakes(2);
    my $nginx = nginx(
        fakes => \@two, upstream => 'mcp_keepalive zone=mcp:1m interval=1h'
            . ' failures=3; mcp_reconnect backoff=30s;');
    my %at = place($nginx, 1, \@two);
    my $c = $at{ $gone->{name} }[0];

    $gone->kill;
    is_unavailable($c->call, 'failures=3: the first') for 1, 2;
    is($nginx->peer($gone)->{state}, 'connected', 'failures=3: not marked yet');

    my $third = $c->call->status;

    ok($third == 404 || $third == 503, 'failures=3: the third');
    is($nginx->peer($gone)->{state}, 'degraded', 'failures=3: marked');
    is_lost($c->call, 'failures=3: the fourth');
    is($stays->stats->{misrouted}, 0, 'failures=3: none went astray');

    $nginx->stop;
    $_->kill for @two;
    return;
}


# ---- nobody is left ----

sub all_down {
    $live->refuse(drop => 1);

    for my $up (qw(pair spare late)) {
        my $lost = 0;
        my $ok = wait_for(sub {
            my $x = client($nginx, uri => "/$up/caught")->initialize;

            $lost++ if $x->status != 503 || !$x->header('Retry-After');
            return in_state($nginx, $live, 'degraded', $up);
        }, 4, 50);

        ok($ok, "all down, $up: degraded");
        is($lost, 0, "all down, $up: 503 with Retry-After from the first on");
        is_unavailable(client($nginx, uri => "/$up/caught")->initialize,
                       "all down, $up: a new session");
        is_unavailable(at($up, 'caught')->call, "all down, $up: an old one");
    }

    $live->accept;
    return;
}


# ---- a parked single peer comes back ----

sub back_again {
    my $c = at('parked', 'plain');

    is_unavailable($c->call, 'parked') for 1 .. 3;
    $dead->accept;

    my $x = $c->call;
    my $first = $x->status;

    if ($first != 200) {
        is_unavailable($x, 'back: the first');
        pause_ms(1000);
        $x = $c->call;
    }

    is($x->status, 200, "back: the first call, or the next within a second")
        or diag("first $first, then " . $x->text);
    state_is($nginx, $dead, 'connected', 'back', 2, 'parked');

    my @more = each_client([map { at('parked', 'plain') } 1 .. 10],
                           [('call') x 3]);

    is(scalar(grep { $_->status != 200 } @more), 0, 'back: all go on');
    is(client($nginx, uri => '/parked/plain')->open_session(1)->status, 200,
       'back: and new ones');

    # the pins of the others work again when their peer is connected

    state_is($nginx, $dead, 'connected', "$_: back", 7, $_)
        for qw(pair spare late);
    is(at($_, 'plain')->call->server, $dead->{name},
       "$_: back: the pin works again") for qw(pair spare late);
    return;
}
