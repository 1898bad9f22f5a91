#!/usr/bin/perl

# Lost sessions are started again in their client's name: every way to lose
# one, every method, what may stand in a location, and what nobody may see.

use lib 't/lib';
use JSON::PP ();
use MCP::Exchange ();
use MCP::Fake ();
use MCP::H2 ();
use MCP::Lost;
use MCP::Peers;
use MCP::Revive;
use MCP::Test;
use MCP::Util qw(json_text slurp);

my @fakes = my ($one, $two) = fakes(2);
my ($aside) = fakes(1);
my $ka = 'mcp_keepalive zone=mcp:1m interval=1h timeout=3s;';
my $proxy = 'proxy_http_version 1.1; proxy_set_header Connection "";'
          . ' proxy_pass http://';
my $direct = "proxy_buffering off; $proxy";

# what may stand in a location

my $pages = 'error_page 400 404 500 502 503 504';
my %setting = (
    plain => '', buffered => 'proxy_buffering on;',
    caught => "proxy_intercept_errors on; $pages = /page;",
    shown => "$pages /page; recursive_error_pages on;",
    named => "proxy_intercept_errors on; $pages = \@page;",
    next => 'proxy_next_upstream error timeout non_idempotent http_404'
          . ' http_500 http_502 http_503;',
    header => 'proxy_set_header Mcp-Session-Id $http_mcp_session_id;',
    other_header => 'proxy_set_header X-Copy $http_mcp_session_id;',
    file => 'client_body_in_file_only clean;',
    small => 'client_body_buffer_size 1k;',
    gzip => 'gzip on; gzip_min_length 1; gzip_types application/json;',
    cors => "add_header Access-Control-Allow-Origin '*' always;",
    asked => 'auth_request /yes;',
    rewritten => 'rewrite ^/rewritten /mcp/inner?x=1 break;',
    after => 'post_action /aside_after;',
    mirrored => 'mirror /aside_mirrored;',
    slow => 'limit_rate 100k;',
    aborts => 'proxy_ignore_client_abort on;',
);

my $http2 = MCP::Nginx::version() >= 1_025_001;

# what other parts of the module bring is used once it is there

my $digest = understands('map $mcp_session $x { default 1; }')
             ? '$mcp_session' : '-';
my $heartbeat = understands('mcp_heartbeat 150ms;');
my $locations = join '', map {
    my $own = $_ eq 'buffered' ? $proxy : $direct;
    "location /$_ { $setting{$_} ${own}tools; }\n" } sort keys %setting;
my $nginx = nginx(
    fakes => [$one, $two, $aside], workers => 2,
    servers => [map { $_->addr } @fakes],
    upstream => "$ka mcp_revive on limit=1000; keepalive 8;",
    http => 'upstream aside { server %%fake3%%; }'
          . 'map $http_x_tag $tagged { "" 0; default 1; }'
          . 'log_format tagged "$http_x_tag|$status|$http_mcp_session_id|'
          . "$digest|" . '$upstream_addr|$request_method";'
          . 'server { listen 127.0.0.1:%%port2%%'
          . ($http2 ? '; http2 on; ' : ' http2; ') . $locations . ' }',
    server => 'access_log %%dir%%/access.log;'
            . 'access_log %%dir%%/tagged.log tagged if=$tagged;'
            . 'location = /page { return 200 "page"; }'
            . 'location @page { return 200 "page"; }'
            . 'location = /yes { return 204; }'
            . 'location /aside { internal; proxy_pass_request_headers off;'
            . " ${proxy}aside; }"
            . 'location /http10 { proxy_buffering off;'
            . ' proxy_pass http://tools; }'
            . "location /replaced/ { ${direct}tools/other/; }"
            . "location ~ ^/regex/(.*) { ${direct}tools; }"
            . "location /stream { proxy_request_buffering off;"
            . " ${direct}tools; }" . $locations);

subtest config => \&config;
subtest settings => \&settings;
subtest handshake => \&handshake;
subtest own_answers => \&own_answers;
subtest answers_of_start => \&answers_of_start;
subtest answers_of_call => \&answers_of_call;
subtest bodies => \&bodies;
subtest unbuffered => \&unbuffered;
subtest notification => \&notification;
subtest get => \&get_stream;
subtest last_event_id => \&last_event_id;
subtest list_changed => \&list_changed;
subtest delete => \&delete_session;
subtest http2 => \&http_2;
subtest connection => \&connection;
subtest again => \&lost_again;
subtest not_kept => \&not_kept;
subtest starts_over => \&starts_over;
subtest variables => \&variables;
subtest hidden => \&hidden;
finish();


# ---- helpers ----

sub understands {
    my ($http) = @_;

    my ($passed) = MCP::Nginx->config_test(
        servers => ['127.0.0.1:1'], http => $http, upstream => $ka);

    return $passed;
}


sub at { my ($where, %arg) = @_; return agent($nginx, uri => "/$where", %arg) }


sub lost_at { return lose(at(@_)) }


# One that is known to be lost: its server has told somebody whose request
# cannot be sent again.

sub known_lost {
    my ($where, %arg) = @_;

    my $c = lost_at($where, %arg);
    my $uri = $c->{uri};

    $c->{uri} = '/stream';
    $c->wait($c->start_rpc('tools/call', { x => 'y' x 80_000 }));
    $c->{uri} = $uri;

    return mark_trail($c);
}


# Each of these fakes tells of an unknown session in its way.

sub unknown {
    my (%answer) = @_;

    $_->sessions(unknown => { status => 404, code => -32001,
                              message => 'Session not found', %answer })
        for @fakes;
    return;
}


sub rule_all { my (@rule) = @_; $_->rule(@rule) for @fakes; return }


sub clear_all { $_->clear for @fakes; return }


# ---- the directive ----

sub config {
    for my $text ('mcp_revive off;', 'mcp_revive on;',
                  'mcp_revive on limit=1;', 'mcp_revive on limit=100;',
                  'mcp_revive off; mcp_pin off;',
                  'mcp_revive on; mcp_pin on failover=parked;')
    {
        my ($passed, $said) = MCP::Nginx->config_test(
            servers => ['127.0.0.1:1'], upstream => "$ka $text");

        ok($passed, "good: $text") or diag($said);
    }

    my @bad = (['mcp_revive;', 'arguments'], ['mcp_revive maybe;', 'maybe'],
               ['mcp_revive on on;', 'on'], ['mcp_revive limit=3;', 'limit'],
               ['mcp_revive on limit=0;', 'limit'],
               ['mcp_revive on limit=-1;', 'limit'],
               ['mcp_revive on limit=few;', 'limit', 'few'],
               ['mcp_revive on limit=;', 'limit'],
               ['mcp_revive on limit=1 limit=2;', 'arguments|limit'],
               ['mcp_revive on limit=99999999999999999999;', 'limit'],
               ['mcp_revive on wrong=1;', 'wrong'],
               ['mcp_revive on; mcp_revive off;', 'duplicate'],
               ['mcp_pin off; mcp_revive on;', 'mcp_pin'],
               ['mcp_revive on; mcp_pin off;', 'mcp_pin']);

    is_refused("$ka $_->[0]", @$_) for @bad;
    is_refused('mcp_revive on;', 'without mcp_keepalive', 'mcp_keepalive');
    return;
}


sub is_refused {
    my ($upstream, $name, @words) = @_;

    my ($passed, $said) = MCP::Nginx->config_test(
        servers => ['127.0.0.1:1'], upstream => $upstream);
    my ($emerg) = $said =~ /(\[emerg\].*)/s;

    $emerg //= '';

    my @missing = grep { $emerg !~ /$_/i } '"mcp_revive[" ]', @words;

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    ok(!$passed && !@missing, "bad: $name")
        or diag("misses: @missing\nsaid: $said");
    return;
}


# ---- what stands in the location ----

sub settings {
    my @where = (sort(keys %setting), 'http10', 'replaced/x?k=v', 'regex/x');

    for my $where (@where) {
        my $c = lost_at($where);

        call_is_revived($c, $where) or next;

        my %uri = map { $_->{uri} => 1 } requests_of($c);

        is(scalar keys %uri, 1, "$where: one URI") or diag(explain(\%uri));

        # from now on there is nothing to it

        mark_trail($c);
        is_revived($c, $c->call, "$where: the next");
        is(trail($c), 'tools/call new', "$where: the next goes straight on");
    }

    my @copies = map { MCP::Fake::values_of($_, 'X-Copy') }
                 map { $_->requests(uri => '/other_header') } @fakes;

    ok(@copies > 0, 'a copy of the id went out');

    # as often as there were requests of clients

    for my $what (qw(after mirrored)) {
        my $count = sub { scalar(() = $aside->requests(uri => "/aside_$what")) };

        eventually(sub { $count->() == 5 }, "$what: once each request", 2)
            or diag($count->());
    }

    return;
}


# ---- what is sent to start it again ----

sub handshake {
    my $c = at('plain?q=1', open => -1, headers => [['X-More', 'more'],
                                                    ['Cookie', 'a=b']]);
    my %params = (
        protocolVersion => '2025-03-26',
        capabilities => { roots => { listChanged => \1 }, sampling => {} },
        clientInfo => { name => "n\x{e4}me \"quoted\"", version => '1.5',
                        title => "\x{1f600}" });

    $c->{version} = '2025-03-26';
    $c->{starting} = $c->start_rpc('initialize', \%params);
    $c->wait($c->{starting});
    $c->initialized;
    $c->call;
    lose($c);
    is_revived($c, $c->call, 'revived');
    is(trail($c), TRAIL, 'as the servers saw it');

    my (undef, $start, $then, $call) = requests_of($c, since => 1);

    is_deeply(JSON::PP->new->utf8->decode($start->{body})->{params}, \%params,
              'initialize: with the params of the client');
    is($start->{method}, 'POST', 'initialize: POST');
    is($then->{method}, 'POST', 'initialized: POST');
    is($then->{body}, '{"jsonrpc":"2.0","method":"notifications/initialized"}',
       'initialized: its body');

    for my $event ($start, $then) {
        my %has = map { lc $_->[0] => $_->[1] } @{ $event->{headers} };

        is($has{'content-type'}, 'application/json', 'content type');
        like($has{accept}, qr{^application/json, ?text/event-stream$},
             'accept');
        is($has{'x-more'}, 'more', 'a header of the request that waits');
        is($has{cookie}, 'a=b', 'its cookie');
        is($has{host}, (MCP::Fake::values_of($call, 'Host'))[0], 'its host');
        is($has{origin}, undef, 'no origin');
        is($has{'last-event-id'}, undef, 'no Last-Event-ID');
        is($event->{uri}, '/plain?q=1', 'the URI');
    }

    my @ids = map { MCP::Fake::values_of($_, 'Mcp-Session-Id') } $start;

    is("@ids", '', 'initialize: no session');
    is($then->{session}, $call->{session}, 'initialized: the new session');
    is(join('', MCP::Fake::values_of($then, 'MCP-Protocol-Version')),
       '2025-03-26', 'initialized: the version');
    # the module's own requests are in no access log

    eventually(sub { 4 <= grep { m{ /plain\?q=1 } } $nginx->access_lines },
               'requests of the client in the access log');
    is(scalar(grep { m{ /plain\?q=1 } } $nginx->access_lines), 4,
       'and only those');
    return;
}


# ---- how a server says that it does not know the session ----

sub own_answers {
    my @unknown = ([404, -32001, 'Session not found'],
                   [400, -32000, 'Bad Request: No valid session ID provided'],
                   [200, -32600, 'missing or invalid Mcp-Session-Id'],
                   [503, -32001, 'session is unknown on this instance'],
                   [500, -32000, 'Session expired']);

    for my $case (@unknown) {
        my ($status, $code, $message) = @$case;

        unknown(status => $status, code => $code, message => $message);

        for my $where (qw(plain caught buffered http10)) {
            call_is_revived(lost_at($where), "$status, $where");
        }
    }

    # without a word of JSON-RPC

    for my $do ({ status => 404, type => 'text/html', body => '<p>no</p>' },
                { status => 404, body => '' },
                { status => 404, body => '', framing => 'chunked' })
    {
        for my $where (qw(plain caught)) {
            my $c = lost_at($where);

            rule_all(when => { session => $c->session }, do => $do);
            is_revived($c, $c->call, "404, \"$do->{body}\", $where");
            is(trail($c), TRAIL, "404, \"$do->{body}\", $where: trail");
            clear_all();
        }
    }

    # what is no loss goes through

    for my $status (400, 401, 403, 429, 500) {
        my $c = mark_trail(at('plain'));

        rule_all(when => { session => $c->session },
                 do => { status => $status, body => 'no' });

        my $x = $c->call;

        is($x->status . $x->body, "${status}no", "$status: as it is");
        is(trail($c), 'tools/call old', "$status: nothing is started");
        clear_all();
    }

    unknown();
    return;
}


# ---- the answers to initialize, and to what follows ----

sub shapes {
    return ({}, { mode => 'sse' }, { mode => 'sse', priming => 1, notify => 1 },
            { mode => 'sse', stay_open => 1 }, { framing => 'chunked' },
            { framing => 'close' }, { mode => 'sse', framing => 'chunked' },
            { body_delay => 50 }, { mode => 'sse', body_delay => 50 },
            { body_bytes => 50_000 }, { status => 201 });
}


sub answers_of_start {
    for my $do (shapes()) {
        my $name = json_text($do);

        for my $where (qw(plain buffered)) {
            my $c = lost_at($where);

            rule_all(when => { rpc => 'initialize' }, do => $do);
            call_is_revived($c, "$name, $where");
            clear_all();

            # the client's own came in the same shape

            rule_all(when => { rpc => 'initialize' }, do => $do);
            $c = at($where, open => -1);
            my $x = $c->start_initialize;

            MCP::Exchange::drive([$x], timeout => 3, until => sub {
                $x->body =~ /\n\n\z/ || $x->over });
            $c->{session} = $x->header('Mcp-Session-Id');
            delete $c->{starting};
            clear_all();
            $c->initialized;
            $c->call;

            # long ones take valgrind a while to read
            pause_ms(300) if slow() > 1;

            lose($c);
            call_is_revived($c, "$name, $where, from the start");
            $x->abort;
        }
    }

    return;
}


sub answers_of_call {
    for my $do (shapes()) {
        next if $do->{stay_open};

        my $name = json_text($do);
        my $c = lost_at('plain');

        # not the first one, which tells of the loss

        rule_all(when => { rpc => 'tools/call', known => 1 }, do => $do);

        my $x = $c->call;

        is_revived($c, $x, $name, $do->{status});
        is(($x->json // {})->{id}, $c->{id}, "$name: answers its id");
        like($x->server // '', qr/^s[12]$/, "$name: a result");
        clear_all();
    }

    # nothing is added where the server says no id

    my $c = lost_at('plain');

    rule_all(when => { rpc => 'tools/call' }, do => { no_echo => 1 });

    my $x = $c->call;

    is($x->status, 200, 'no id in the answer: 200');
    is($x->header('Mcp-Session-Id'), undef, 'no id in the answer');
    clear_all();
    return;
}


# ---- bodies ----

sub bodies {
    for my $where (qw(plain small file http10)) {
        for my $size (10, 3000, 40_000) {
            my $c = lost_at($where);
            my $text = 'y' x $size . "z\x{e4}";
            my $x = $c->wait($c->start_rpc('tools/call',
                { name => 'echo', arguments => { x => $text } }));

            is_revived($c, $x, "$where, $size");

            my ($first, $second) = map { $_->{body} }
                grep { ($_->{rpc} // '') eq 'tools/call' }
                requests_of($c, since => 1);

            ok(defined $second && $first eq $second,
               "$where, $size: the same body both times");
            ok(index($second // '', $text =~ s/z.*//r) > 0,
               "$where, $size: and right");
        }
    }

    # in chunks, and slowly

    my $c = lost_at('plain');
    my $json = '{"jsonrpc":"2.0","id":77,"method":"tools/call",'
             . '"params":{"name":"echo"}}';
    my $x = $c->start('POST', undef, $c->mcp_headers,
                      ['Transfer-Encoding', 'chunked']);

    $x->{out} .= sprintf("%x\r\n%s\r\n", 10, substr $json, 0, 10);
    MCP::Exchange::drive([$x], timeout => 0.2);
    $x->{out} .= sprintf("%x\r\n%s\r\n0\r\n\r\n", length($json) - 10,
                         substr $json, 10);
    $c->wait($x);
    is_revived($c, $x, 'in chunks');
    is(trail($c), TRAIL, 'in chunks: trail');
    is(((requests_of($c))[-1] // {})->{body}, $json,
       'in chunks: the same body');

    # a batch, and what is no JSON

    for my $body ('[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]', '{no') {
        $c = lost_at('plain');
        $x = $c->request('POST', $body, $c->mcp_headers);
        is($x->header('Mcp-Session-Id'), $c->session, "$body: its id");
        is((requests_of($c))[-1]{body}, $body, "$body: goes on as it is");
        is(agent_starts($c), 1, "$body: one start");
    }

    return;
}


# Without the whole body there is no second time: only what is known before.

sub unbuffered {
    for my $size (10, 80_000) {
        my $c = lost_at('stream');
        my $start = sub {
            return $c->start_rpc('tools/call', { name => 'echo',
                                 arguments => { x => 'y' x $size } });
        };

        my $x = $c->wait($start->());

        if ($size < 1000) {
            is_revived($c, $x, 'all of it came with the head');
            next;
        }

        is($x->status, 404, "$size: 404 when it is not known to be lost");
        is(trail($c), 'tools/call old', "$size: nothing is started");

        mark_trail($c);
        is_revived($c, $c->wait($start->()), "$size: then it is revived");
        is(trail($c) =~ s/, tools.*//r, 'initialize none,'
           . ' notifications/initialized new', "$size: before it is sent");
        ok(index((requests_of($c))[-1]{body}, '"' . 'y' x $size . '"') > 0,
           "$size: the whole body");
        is_revived($c, $c->wait($start->()), "$size: the next");
    }

    # the body comes while it waits

    my $c = known_lost('stream');
    my $json = '{"jsonrpc":"2.0","id":78,"method":"tools/call","params":{"x":"'
             . 'y' x 2000 . '"}}';

    rule_all(when => { rpc => 'initialize' }, do => { delay => 300 });

    my $x = $c->start('POST', $json, $c->mcp_headers);
    my $late = substr $x->{out}, -1500, 1500, '';

    MCP::Exchange::drive([$x], timeout => 0.1);
    $x->{out} .= substr $late, 0, 700;
    MCP::Exchange::drive([$x], timeout => 0.5);
    $x->{out} .= substr $late, 700;
    $c->wait($x);
    is_revived($c, $x, 'a slow body');
    is((requests_of($c))[-1]{body}, $json, 'a slow body: whole');
    clear_all();
    return;
}


sub notification {
    my $c = lost_at('plain');
    my $x = $c->wait($c->start_rpc('notifications/roots/list_changed'));

    is_revived($c, $x, 'a notification', 202);
    is(agent_starts($c), 1, 'a notification: one start');

    # an answer to a question of the server's

    $c = lost_at('plain');
    $x = $c->request('POST', '{"jsonrpc":"2.0","id":5,"result":{}}',
                     $c->mcp_headers);
    is($x->header('Mcp-Session-Id'), $c->session, 'an answer: its id');
    is(agent_starts($c), 1, 'an answer: one start');
    return;
}


# ---- GET ----

sub pushed {
    my ($c, $text) = @_;

    my $id = (requests_of($c))[-1]{session};

    $_->push_text($text, $id) for @fakes;
    return;
}


sub reads {
    my ($x, $what, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    MCP::Exchange::drive([$x], timeout => 3,
                         until => sub { $x->body =~ $what });
    return like($x->body, $what, $name);
}


sub get_stream {
    for my $where (qw(plain caught http10)) {
        my $c = lost_at($where);
        my $x = opens($c, $where);

        is(trail($c), TRAIL =~ s{tools/call}{GET}gr, "$where: trail");
        pushed($c, "data: {\"jsonrpc\":\"2.0\",\"method\":\"x/one\"}\n\n");
        reads($x, qr{x/one}, "$where: its events come");
        call_ok($c, "$where: a call beside it");
        $x->abort;
    }

    # comments keep it alive

    return unless $heartbeat;

    my $nginx = nginx(fakes => \@fakes, workers => 2,
                      http => 'mcp_heartbeat 150ms;',
                      upstream => "$ka mcp_revive on; keepalive 4;");
    my $c = lose(agent($nginx));
    my $x = opens($c, 'heartbeat');

    reads($x, qr/(?::\n\n.*){3}/s, 'heartbeat: three of them');
    is($nginx->upstream->{streams}{open}, 1, 'heartbeat: one stream is open');
    is($nginx->upstream->{streams}{opened}, 1, 'and one has been opened');
    $x->abort;
    eventually(sub { $nginx->upstream->{streams}{open} == 0 },
               'heartbeat: none in the end');
    $nginx->stop;
    return;
}


# Events are numbered by a life that is over.

sub last_event_id {
    my $last = ['Last-Event-ID', 'old-life-7'];
    my $sent = sub {
        my ($c) = @_;
        my @get = grep { $_->{method} eq 'GET' && $_->{known} }
                  requests_of($c, since => 1);

        return join ',', map { MCP::Fake::values_of($_, 'Last-Event-ID') }
                         $get[-1] // ();
    };

    my $c = lost_at('plain');
    opens($c, 'a revived GET', $last)->abort;
    is($sent->($c), '', 'a revived GET: without Last-Event-ID');
    opens($c, 'the second', ['Last-Event-ID', 'new-1'])->abort;
    is($sent->($c), 'new-1', 'the second: with it');

    $c = lost_at('plain');
    call_ok($c, 'a revived call');
    opens($c, 'the first GET after it', $last)->abort;
    is($sent->($c), '', 'the first GET after it: without Last-Event-ID');
    opens($c, 'the second', ['Last-Event-ID', 'new-2'])->abort;
    is($sent->($c), 'new-2', 'the second: with it');

    # one that is not revived keeps it

    $c = mark_trail(at('plain'));
    opens($c, 'never lost', $last)->abort;
    is($sent->($c), 'old-life-7', 'never lost: with it');

    # the location may copy it

    $c = lost_at('header');
    opens($c, 'header', $last)->abort;
    is($sent->($c), '', 'header: without Last-Event-ID');
    return;
}


sub list_changed {
    my $notice = qr{^data:.*"method":\s*"notifications/tools/list_changed"}m;

    for my $way (qw(get call)) {
        my $c = lost_at('plain');

        call_ok($c, "$way: a call first") if $way eq 'call';

        my $x = opens($c, $way);

        reads($x, $notice, "$way: the tools may be others");
        pushed($c, "data: {\"jsonrpc\":\"2.0\",\"method\":\"x/two\"}\n\n");
        reads($x, qr{x/two\"\}\n\n}, "$way: other events");
        is(scalar(() = $x->body =~ /$notice/g), 1, "$way: said once");
        is(scalar(grep { !/^(?:data:\ \{"jsonrpc":"2\.0".*\}
                            |event:\ message|:.*|)$/x } split /\n/, $x->body), 0,
           "$way: whole events") or diag($x->body);
        $x->abort;

        $x = opens($c, "$way, the next");
        pushed($c, "data: {\"jsonrpc\":\"2.0\",\"method\":\"x/three\"}\n\n");
        reads($x, qr{x/three}, "$way, the next: its events");
        unlike($x->body, $notice, "$way, the next: not said again");
        $x->abort;
    }

    # whose server had not announced it

    my $c = at('plain', open => -1);

    rule_all(when => { rpc => 'initialize' }, times => 1, do => {
        type => 'application/json', body => json_text({
            jsonrpc => '2.0', id => 1, result => {
                protocolVersion => '2025-06-18', capabilities => { tools => {}
                }, serverInfo => { name => 'x', version => '1' } } }) });
    $c->open_session(1);
    clear_all();
    lose($c);

    my $x = opens($c, 'not announced');

    pushed($c, "data: {\"jsonrpc\":\"2.0\",\"method\":\"x/four\"}\n\n");
    reads($x, qr{x/four}, 'not announced: its events');
    unlike($x->body, $notice, 'not announced: not said');
    $x->abort;
    return;
}


# ---- DELETE ----

sub delete_session {

    # nobody starts what is to end

    my $c = lost_at('plain');

    is($c->delete_session->status, 404, 'a lost one: 404');
    is(trail($c), 'DELETE old', 'a lost one: nothing is started');

    $c = known_lost('plain');
    is_lost($c->delete_session, 'one known to be lost');
    is(trail($c), '', 'one known to be lost: nothing is sent');

    # both ids end

    $c = lost_at('plain');
    call_ok($c, 'a revived one');
    mark_trail($c);

    my $before = $nginx->upstream->{sessions}{deleted};

    is($c->delete_session->status, 200, 'a revived one');
    is(trail($c), 'DELETE new', 'goes out with the new id');
    is($nginx->upstream->{sessions}{deleted}, $before + 1, 'counted once');
    mark_trail($c);

    my $x = $c->call;

    is($x->status, 404, 'then nobody knows the old one');
    is(trail($c), 'tools/call old', 'and nothing is started');

    # a server that does not let it

    $c = lost_at('plain');
    call_ok($c, 'one that must not end');
    rule_all(when => { method => 'DELETE' },
             do => { status => 405, body => 'no', keep => 1 });
    mark_trail($c);
    is($c->delete_session->status, 405, 'one that must not end: 405');
    is(trail($c), 'DELETE new', 'with the new id');
    clear_all();
    mark_trail($c);
    call_ok($c, 'it lives on');
    is(trail($c), 'tools/call new', 'under the new id');
    return;
}


# ---- HTTP/2 ----

sub http_2 {
    plan(skip_all => 'no nghttp') unless grep { -x "$_/nghttp" }
                                         split /:/, $ENV{PATH};

    for my $where (qw(plain caught small)) {
        my $c = lost_at($where);
        my @got = MCP::H2::two_over_h2($nginx, $c, 'POST');

        is(join(' ', map { $_->{':status'} // 'none' } @got), '200 200',
           "POST, $where: both on one connection");
        is($_->{'mcp-session-id'}, $c->session, "POST, $where: its id")
            for @got;
        like($got[0]{body} // '', qr/"result":/, "POST, $where: the result");

        my @seen = grep { defined $_->{session} }
                   map { $_->requests(rpc => 'initialize') } @fakes;

        is(scalar @seen, 0, "POST, $where: initialize without an id");
    }

    # a stream

    my $c = lost_at('plain');
    my $out = h2_get($c);

    like($out, qr/recv \(stream_id=\d+\) :status: 200/, 'GET: 200');
    like($out, qr{content-type: text/event-stream}, 'GET: a stream');
    like($out, qr/mcp-session-id: \Q@{[ $c->session ]}\E/, 'GET: its id');

    # DELETE of a revived one

    $c = lost_at('plain');
    call_ok($c, 'before DELETE');
    mark_trail($c);
    @_ = MCP::H2::two_over_h2($nginx, $c, 'DELETE');
    is($_[0]{':status'}, 200, 'DELETE: 200');
    is($_[1]{':status'}, 404, 'DELETE: the second finds none');
    return;
}


sub h2_get {
    my ($c) = @_;

    # it ends by its timeout, and says so

    my @command = ('nghttp', '-v', '-t1', '--no-dep',
                   '-Haccept: text/event-stream',
                   '-Hmcp-session-id: ' . $c->session,
                   'http://127.0.0.1:' . $nginx->port(2) . $c->{uri});

    open my $pipe, '-|', 'sh', '-c', 'exec "$@" 2>&1', 'sh', @command
        or die "nghttp: $!\n";

    my $all = do { local $/; <$pipe> } // '';

    close $pipe;
    return $all =~ s/\e\[[\d;]*m//gr;
}


# ---- the connection of the client ----

sub connection {
    for my $where (qw(plain small caught stream)) {
        my $c = at($where, keepalive => 1);

        $c->call;
        lose($c);

        my @x = map { $c->call } 1 .. 3;

        is_revived($c, $_, "$where: a call") for @x;
        is(join(' ', map { $_->{reused} } @x), '1 1 1',
           "$where: the connection is kept");
    }

    # two in one go

    my $c = lost_at('plain', keepalive => 1);
    my @x = map { $c->start_call } 1, 2;
    my $bytes = join '', map { $_->{bytes} =~ s/\r\nConnection: close//r } @x;

    $_->abort for @x;
    lose($c);

    my $y = MCP::Exchange->new(port => $nginx->port, bytes => $bytes);

    MCP::Exchange::drive([$y]);
    is_revived($c, $y, 'two in one go: the first');

    my $z = MCP::Exchange->new(port => $nginx->port, bytes => '', fh => $y->{fh});
    $z->{http}->feed($y->{http}{buf});
    MCP::Exchange::drive([$z]);
    is_revived($c, $z, 'two in one go: the second');
    is(agent_starts($c), 1, 'two in one go: one start');
    return;
}


# ---- again and again ----

sub lost_again {
    my $c = at('plain');

    for my $n (1 .. 5) {
        lose($c);
        is_revived($c, $c->call, "loss $n");
        is(agent_starts($c), 1, "loss $n: one start");
        is($c->session, $c->{first}, "loss $n: its id is as ever");
    }

    # a server that gives ids of other lengths, and the one the client has

    for my $id ('x', 'y' x 3000, 'z' x 500, $c->session, '!"#$%&\'()*+~') {
        lose($c);
        $_->sessions(ids => [$id]) for @fakes;
        is_revived($c, $c->call, 'an id of ' . length $id);
        ok(((requests_of($c))[-1]{session} // '') eq $id, 'goes out as it is');
        is_revived($c, $c->call, 'and again');
        $_->sessions(ids => []) for @fakes;
    }

    return;
}


# Without what it began with no session is started again.

sub not_kept {
    my %params = (protocolVersion => '2025-06-18', capabilities => {},
                  clientInfo => { name => 'n' x 3000, version => '1' });
    my $c = at('plain', open => -1);

    $c->{starting} = $c->start_rpc('initialize', \%params);
    $c->wait($c->{starting});
    $c->initialized;
    $c->call;
    lose($c);
    is($c->call->status, 404, 'params over 2 KiB: 404');
    is(trail($c), 'tools/call old', 'params over 2 KiB: nothing is started');
    mark_trail($c);
    is_lost($c->call, 'params over 2 KiB: lost');
    is(trail($c), '', 'params over 2 KiB: refused from then on');

    # just below is kept

    $c = at('plain', open => -1);
    $params{clientInfo}{name} = 'n' x 1900;
    $c->{starting} = $c->start_rpc('initialize', \%params);
    $c->wait($c->{starting});
    $c->initialized;
    $c->call;
    lose($c);
    call_is_revived($c, 'params below 2 KiB');

    # adopted: nobody saw it begin

    my $direct = MCP::Client->new(port => $one->{port});

    $direct->open_session(0);
    $c = at('plain', open => -1, session => $direct->session);

    my $done = wait_for(sub {
        $_->forget('x') for @fakes;
        return $c->call->status == 200;
    });

    ok($done, 'adopted: in use');
    is($c->call->status, 200, 'adopted: and again') if $done;
    lose($c);
    is($c->call->status, 404, 'adopted: 404');
    is(agent_starts($c), 0, 'adopted: nothing is started');
    return;
}


# A client that starts over by itself is let.

sub starts_over {
    my $c = lost_at('plain');
    my $old = $c->session;

    rule_all(when => { rpc => 'initialize' }, times => 0, do => {});

    my $x = $c->initialize;

    is($x->status, 200, 'initialize with the old id: 200');
    isnt($c->session, $old, 'a new session, by its own id');
    is(agent_starts($c), 1, 'one start');
    $c->initialized;
    mark_trail($c);
    is($c->call->status, 200, 'which works');
    is(trail($c), 'tools/call old', 'as it is');
    clear_all();
    return;
}


# ---- what nginx's log shows ----

sub variables {
    my $c = at('plain');
    my $tag = "v$c->{agent}";

    $c->call(undef, tag("$tag-1"));
    lose($c);
    $c->call(undef, tag("$tag-2"));
    $c->call(undef, tag("$tag-3"));

    my %line;
    my $all = sub {
        %line = map { /^($tag-\d)\|(.*)/ ? ($1 => [split /\|/, $2]) : () }
                split /\n/, slurp("$nginx->{dir}/tagged.log");
        return keys %line == 3;
    };

    eventually($all, 'three lines') or return;

    for my $n (1 .. 3) {
        my ($status, $id, $digest) = @{ $line{"$tag-$n"} };

        is($status, 200, "$n: the status");
        is($id, $c->session, "$n: \$http_mcp_session_id is the client's");
        is($digest, $line{"$tag-1"}[2], "$n: \$mcp_session is the same");
    }

    my $id = (requests_of($c))[-1]{session};
    my ($server) = grep { $_->requests(session => $id) } @fakes;

    is($line{"$tag-3"}[3], $server->addr, 'the new server');

    # one line for a request

    is(scalar(grep { /\Q$tag\E/ } split /\n/,
              slurp("$nginx->{dir}/tagged.log")), 3, 'one line for each');
    return;
}


# ---- ids ----

sub hidden {
    my @shown = hidden_ids($nginx);

    # the access log of this test writes the client's on purpose, elsewhere

    is(scalar @shown, 0, 'no id stands in a log or the status')
        or diag(join "\n", @shown[0 .. ($#shown < 3 ? $#shown : 3)]);
    is(scalar(grep { /mcpka-/ } $nginx->log_lines), 0, 'nor one of ours');

    return;
}
