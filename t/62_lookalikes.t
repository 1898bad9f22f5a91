#!/usr/bin/perl

# Answers that look like a lost session and are none, and servers that know
# no sessions: nothing changes for the client, and nothing is made up.

use lib 't/lib';
use MCP::Lost;
use MCP::Test;

my $fake = fake();

my $html = '<html><body>404 Not Found</body></html>';


# ---- the table ----

# name, answer, verdicts of a keepalive that gets it, what the client sees:
#   own    the server's answer; the session goes on
#   ours   the module's 404: this one is no look-alike

my @cases = (
    [B16 => { status => 404, error => { code => -32601,
                                        message => 'Method not found' } },
     own => 'unsupported'],
    [B16_session => { status => 404, error => {
        code => -32601, message => 'Method not found in this session' } },
     own => 'unsupported'],

    [B20_401 => rpc_error(401, -32001, 'Unauthorized'), own => 'auth'],
    [B20_401_session => rpc_error(401, -32001, 'Login session expired'),
     own => 'auth'],
    [B20_404 => rpc_error(404, -32001, 'No idea'), own => 'session_lost'],
    [B20_200_timeout => { error => { code => -32001,
                                     message => 'Request timed out' } },
     own => 'ok'],
    [B20_200_text => { error => { code => -32001,
                                  message => 'Session not found' } },
     ours => 'session_lost'],
    [B20_400_header => rpc_error(400, -32001, 'Header mismatch: Mcp-Method'),
     own => 'misroute'],

    [B38 => rpc_error(409, -32000,
        'Conflict: Only one SSE stream is allowed per session'),
     own => 'misroute'],
    [B39 => { status => 400, type => 'text/plain', body =>
              'session registration failed: session already exists' },
     own => 'misroute'],

    [version => rpc_error(400, -32000,
        'Bad Request: Unsupported protocol version (supported versions: 1)'),
     own => 'misroute'],
    [host => rpc_error(403, -32000, 'Invalid Host header'),
     own => 'misroute'],
    [internal => { error => { code => -32603, message => 'Internal error' } },
     own => 'ok'],
    [params => { status => 400, error => { code => -32602,
                                           message => 'Invalid params' } },
     own => 'ok'],
    [bare_500 => { status => 500, body => '' }, own => 'session_suspect'],
    [page_500 => { status => 500, type => 'text/html',
                   body => '<html>Session expired</html>' },
     own => 'session_suspect'],
    [limit => { status => 429, type => 'text/plain',
                body => 'slow down', headers => [['Retry-After', '1']] },
     own => 'limited'],
    [redirect => { status => 307, body => '', headers => [
        ['Location', 'http://login.example/session-expired']] },
     own => 'misroute'],
    [gone => { status => 405, type => 'text/plain', body => 'not here' },
     own => 'misroute'],
    [result => { type => 'application/json', body =>
                 '{"jsonrpc":"2.0","id":0,"result":{"isError":true,"content":'
                 . '[{"type":"text","text":"Session not found"}],"error":'
                 . '{"code":-32001,"message":"Session not found"}}}' },
     own => 'ok'],
    [page => { type => 'text/html', body => '<p>Session not found' },
     own => 'misroute'],
    [text => { type => 'text/plain', body => 'Session not found' },
     own => 'broken_reply'],
);

my $options = 'mcp_keepalive zone=mcp interval=200ms timeout=500ms;'
            . ' mcp_reconnect backoff=200ms drain=off;';
my $proxy = 'proxy_http_version 1.1; proxy_set_header Connection "";'
          . ' proxy_redirect off;';


# ---- one nginx with all of them ----

my $nginx = nginx(
    fakes => [$fake], workers => 2,
    upstream => 'mcp_keepalive zone=mcp:2m interval=200ms;',
    http => 'upstream stock { server %%fake1%%; }'
          . 'upstream wrong { server %%fake1%%;'
          . ' mcp_keepalive zone=mcp interval=100ms; }'
          . join('', map { "upstream up_$_->[0] { server %%fake1%%; $options "
                           . 'keepalive 2; }' } @cases),
    server => "location /stock { $proxy proxy_pass http://stock; }"
            . "location /wrong { $proxy proxy_pass http://wrong; }"
            . join('', map { "location /$_->[0] { $proxy"
                             . " proxy_pass http://up_$_->[0]; }" } @cases));

my %probed = map { $_->[0] => client($nginx, uri => "/$_->[0]") } @cases;
my %client = map { $_->[0] => client($nginx, uri => "/$_->[0]") } @cases;

each_client([values %probed, values %client],
            [qw(initialize initialized call)]);

for my $case (@cases) {
    $fake->rule(do => $case->[1],
                when => { keepalive => 1,
                          session => $probed{$case->[0]}->session });
}

for my $case (@cases) {
    subtest $case->[0] => sub { run_case($case) };
}

subtest B18 => \&takes_any_id;
subtest B19 => \&issues_none;
subtest B38 => \&second_stream;
subtest wrong_address => \&wrong_address;

finish();


sub requests_of {
    my ($session) = @_;

    return scalar $fake->requests(session => $session, keepalive => 0);
}


sub run_case {
    my ($case) = @_;

    my ($name, $do, $seen, @verdict) = @$case;
    my $c = $client{$name};
    my $session = $c->session;
    my $said = shown($nginx, "up_$name", $name, @verdict);
    my $peer = $said->{peers}[0];

    is("$peer->{state} $peer->{epoch} $peer->{charges}", 'connected 0 0',
       'the peer is as it was');

    $fake->rule(do => $do, when => { keepalive => 0, session => $session });

    my $stock = client($nginx, uri => '/stock', session => $session,
                       id => $c->{id});
    my ($x, $plain) = ($c->call, $stock->call);

    return is_lost($x, 'the client') if $seen eq 'ours';

    is_same($x, $plain, 'the client');
    return if $name eq 'B20_404';       # lost, and says so well enough

    # the session goes on

    my $before = requests_of($session);

    $c->call;
    is(requests_of($session), $before + 1, 'then: the server is asked');

    $said = $nginx->upstream("up_$name");
    is($said->{sessions}{active}, 2, 'the session is not lost');
    is($said->{sessions}{lost}, 0, 'and not counted so');
    is($said->{answers}{translated}, 0, 'nothing is translated');
    return;
}


# ---- B18 ----

sub takes_any_id {
    my %was = %{ $nginx->upstream->{sessions} };

    $fake->sessions(stateless => 1);

    my $c = client($nginx, session => 'never-issued');

    is($c->list->status, 200, 'an id that nobody issued is served');

    my $said = $nginx->upstream;

    is($said->{sessions}{adopted}, $was{adopted} + 1, 'adopted');
    is($said->{sessions}{ready}, $was{ready}, 'not ready on that ground');
    is($said->{sessions}{learned}, $was{learned}, 'not learned');

    $c->call for 1, 2;
    eventually(sub { $fake->keepalives(session => 'never-issued') >= 2 },
               'after a third 2xx it gets keepalives');
    is($nginx->peer($fake)->{state}, 'connected', 'ok proves the peer');
    $fake->sessions(stateless => 0);

    # ok for years, and still: the server's word to the client counts

    my $own = $c->call;

    is($own->status, 404, 'the server has thought better of it');
    is_lost($c->call, 'from then on');
    return;
}


# ---- B19 ----

sub issues_none {
    my %was = %{ $nginx->upstream->{sessions} };

    $fake->sessions(none => 1, stateless => 1);

    my $c = client($nginx, uri => '/mcp?none');

    is($c->initialize->status, 200, 'initialize, no session issued');
    is($_->status, 200, 'served without one') for $c->call, $c->list;
    is(scalar $fake->requests(uri => '/mcp?none'), 3, 'three requests');
    is_deeply([grep { defined $_->{session} }
                    $fake->requests(uri => '/mcp?none')], [],
              'no session header was added');

    my %now = %{ $nginx->upstream->{sessions} };

    is("@now{qw(active learned adopted)}", "@was{qw(active learned adopted)}",
       'no record');

    # a client that sends one all the same

    $fake->sessions(none => 0, stateless => 0,
                    unknown => { status => 400, code => -32000,
                                 message => 'Invalid session ID' });

    my $stray = client($nginx, session => 'x');

    is_lost($stray->call, 'an id the server does not take');
    %now = %{ $nginx->upstream->{sessions} };
    is("@now{qw(active learned adopted)}", "@was{qw(active learned adopted)}",
       'again no record');

    my $before = requests_of('x');

    $stray->call;
    is(requests_of('x'), $before + 1, 'nothing is remembered of it');

    $fake->sessions(unknown => { status => 404, code => -32001,
                                 message => 'Session not found' });
    never(sub { $fake->keepalives(session => 'x')
                || $fake->keepalives(session => '') },
          'no keepalive for any of them', 450);
    return;
}


# ---- B38: a stream that is refused ----

sub second_stream {
    my $c = client($nginx);

    $c->open_session(1);
    $fake->rule(when => { method => 'GET', session => $c->session },
                do => rpc_error(409, -32000, 'Conflict: Only one SSE stream'
                                             . ' is allowed per session'));

    my $x = $c->wait($c->start_get);
    my $had = $fake->keepalives(session => $c->session);

    is($x->status, 409, 'GET: 409 reaches the client');
    is($c->call->status, 200, 'the session is in use');
    eventually(sub { $fake->keepalives(session => $c->session) > $had },
               'and gets keepalives');
    is(scalar $fake->requests(session => $c->session, method => 'GET'), 1,
       'nobody opens a stream in its place');
    return;
}


# ---- fifty clients at an address where no MCP lives ----

sub wrong_address {
    my @strays = map { client($nginx, uri => '/wrong', session => "stray-$_") }
                 1 .. 25;
    my @fresh = clients($nginx, 25, uri => '/wrong');

    $fake->rule(when => { uri => '/wrong' },
                do => { status => 404, type => 'text/html', body => $html,
                        no_echo => 1 });

    my @x = each_client([@fresh], [qw(initialize call list)]);

    is(scalar(grep { $_->status == 404 && $_->body eq $html } @x), 75,
       'without a session they see the page');

    @x = each_client([@strays], [qw(call list get)]);
    is(scalar(grep { $_->status == 404 } @x), 75, 'with one, 404 as well');

    my $said = $nginx->upstream('wrong');

    is($said->{sessions}{active}, 0, 'no session');
    never(sub { $fake->keepalives(uri => '/wrong') }, 'no keepalive', 450);
    is(scalar $fake->requests(uri => '/wrong'), 150,
       'the server saw what the clients sent');

    $said = $nginx->upstream('wrong');
    is(($said->{peers}[0]{keepalives} // {})->{sent} // 0, 0,
       'not one request of the module');
    return;
}
