#!/usr/bin/perl

# The helpers themselves, through an nginx without the module.

use lib 't/lib';
use MCP::Test;
use MCP::Fake ();

my ($one, $two) = fakes(2);

my $nginx = nginx(
    module => 0, workers => 2,
    upstream => 'keepalive 8;',
    server => 'location /two { proxy_pass http://%%fake2%%;'
            . ' proxy_http_version 1.0; }',
    fakes => [$one, $two],
    servers => [$one->addr]);


# ---- sessions ----

my $c = client($nginx, headers => [['X-One', 'a'], ['X-One', 'b']]);
my $x = $c->initialize;

is($x->status, 200, 'initialize');
is(length $c->session, 36, 'a session of 36 bytes');
is($c->initialized->status, 202, 'notifications/initialized');
is($c->call->server, 's1', 'tools/call names its server');
is($c->list->json->{result}{tools}[0]{name}, 'echo', 'tools/list');

my ($seen) = $one->requests(rpc => 'tools/call');

is($seen->{session}, $c->session, 'the fake logs the session');
is_deeply([MCP::Fake::values_of($seen, 'X-One')], ['a', 'b'],
          'doubled headers are kept');
is($seen->{version}, '1.1', 'HTTP version');
is($seen->{keepalive}, 0, 'not a keepalive');

is($c->delete_session->status, 200, 'DELETE');
$x = $c->list;
is($x->status, 404, 'a session after DELETE');
is($x->json->{error}{code}, -32001, 'its code');
is($one->stats->{misrouted}, 1, 'counted as misrouted');

$x = client($nginx, uri => '/two')->initialize;
is($x->server, 's2', 'HTTP/1.0 to the second fake');
is(($two->requests)[0]{version}, '1.0', 'so it was');


# ---- behaviours ----

$c = client($nginx, keepalive => 1);
$c->open_session;

sub with {
    my ($do, $method) = @_;

    $one->rule(do => $do, times => 1);
    return $method ? $c->$method : $c->list;
}

is(with({ mode => 'sse', framing => 'chunked', priming => 1, notify => 1 })
   ->server, 's1', 'SSE');
is(with({ mode => 'sse' })->header('Content-Type'), 'text/event-stream',
   'SSE with a length');
is(with({ framing => 'close' })->server, 's1', 'ended by close');
is(with({ status => 401, headers => [['WWW-Authenticate', 'Bearer']],
          body => 'no' })->text, '401 no', 'any status and body');
is(length with({ body_bytes => 300_000, framing => 'chunked' })->body,
   300_000, 'a long body');
is(with({ close => 'before' })->status, 502, 'close');
is(with({ reset => 'before' })->status, 502, 'reset');
like(with({ reset => 'body', body_bytes => 100_000 })->text, qr/closed/,
     'cut in the body');
cmp_ok(with({ delay => 100 })->ms, '>=', 95, 'delay');

$one->rule(do => { hang => 1 }, when => { rpc => 'tools/list' }, times => 1);
$x = $c->start_list;
MCP::Exchange::drive([$x], timeout => 0.2);
ok(!$x->over, 'hang');
$x->abort;
eventually(sub { grep { $_->{ev} eq 'close' && $_->{busy} } $one->events },
           'the fake sees the client go');


# ---- streams ----

my $stream = $c->get;

is($stream->status, 200, 'GET');
eventually(sub { $one->push_text(": hi\n\n")->{streams} }, 'an open stream');
MCP::Exchange::drive([$stream], until => sub { $stream->body =~ /hi/ });
like($stream->body, qr/^: hi/, 'pushed text');
$stream->abort;


# ---- many at once, reload, kill, refusal ----

my @many = clients($nginx, 200);
my @all = each_client(\@many, [qw(initialize initialized call)],
                      width => 40);

is(scalar(grep { $_->status =~ /^20/ } @all), 600, '200 clients, 3 steps');

my @old = $nginx->workers;

$nginx->reload(gone => 1);
is(scalar(grep { my $p = $_; grep { $p == $_ } @old } $nginx->workers), 0,
   'reload: all workers are new');

$nginx->kill_worker(($nginx->workers)[0]);
eventually(sub { $nginx->workers == 2 && $nginx->log_lines('signal 9') },
           'a killed worker comes back');

$one->refuse(drop => 1);
is($c->list->status, 502, 'refused');
$one->accept;
eventually(sub { $c->list->status == 200 }, 'accepted again');

$one->restart;
is($c->list->status, 404, 'a restarted server knows no session');
is(($one->requests(session => $c->session))[-1]{gen}, 2, 'its generation');


# ---- secrets are found ----

my $leaky = nginx(
    fakes => [$one], secrets => 1, module => 0,
    http => 'log_format all "$http_mcp_session_id|$http_authorization";',
    server => 'access_log %%dir%%/all.log all;');
my $d = client($leaky, headers => [['Authorization', 'Basic d2hvOndoYXQ=']]);

$d->open_session(1);
eventually(sub {
    my %seen = map { (split / shows /)[1] => 1 }
               MCP::Secrets::in_files($leaky->{dir});

    return $seen{ $d->session } && $seen{'d2hvOndoYXQ='};
}, 'an id and a token in a file');
is_deeply([MCP::Secrets::in_text('no secret: *** Bearer *** s1 12-34')], [],
          'words that are none');

finish();
