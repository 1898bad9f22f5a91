#!/usr/bin/perl

# Whatever stands in the location and whatever comes back, a keepalive gets
# through it, gets its verdict, and leaves nothing behind.

use lib 't/lib';
use MCP::Test;

my $fake = fake();
my $tls = tls_files();


# ---- answers: [name, behaviour, verdicts that are right] ----

my @answers = (
    [json => {}, 'ok'],
    [chunked => { framing => 'chunked' }, 'ok'],
    [until_close => { framing => 'close' }, 'ok'],
    [sse => { mode => 'sse' }, 'ok'],
    [sse_more => { mode => 'sse', framing => 'chunked', priming => 1,
                   notify => 1 }, 'ok'],
    [sse_open => { mode => 'sse', priming => 1, stay_open => 1 }, 'ok'],
    [sse_slow => { mode => 'sse', framing => 'chunked', body_delay => 100 },
     'ok'],
    [long => { body_bytes => 300_000 }, 'ok'],
    [huge => { body_bytes => 3_000_000, framing => 'chunked' }, 'ok'],
    [rpc_error => { error => { code => -32603, message => 'no' } }, 'ok'],
    [no_method => { error => { code => -32601,
                               message => 'Method not found' } },
     'unsupported'],
    [http_401 => { status => 401, body => '' }, 'auth'],
    [lost => { status => 404, id => undef,
               error => { code => -32001, message => 'Session not found' } },
     'session_lost'],
    [http_500 => { status => 500, type => 'text/html', body => '<p>no' },
     'session_suspect', 'broken_reply'],
    [http_429 => { status => 429, body => '' }, 'limited', 'broken_reply'],
    [http_502 => { status => 502, body => '' }, 'peer_down'],
    [redirect => { status => 302, body => '',
                   headers => [['Location', 'http://x.example/']] },
     'misroute', 'broken_reply'],
    [html => { type => 'text/html', body => '<p>hi' },
     'misroute', 'broken_reply'],
    [empty => { type => 'application/json', body => '' }, 'broken_reply'],
    [no_content => { status => 204, body => '' }, 'broken_reply'],
    [nonsense => { type => 'application/json', body => '{"a":' },
     'broken_reply'],
    [raw => { raw => "nonsense\r\n\r\n" }, 'peer_down', 'broken_reply'],
    [truncated => { close => 'body', body_bytes => 50_000 },
     'peer_down', 'broken_reply'],
    [reset_body => { reset => 'body', body_bytes => 50_000 }, 'peer_down'],
    [reset => { reset => 'before' }, 'peer_down'],
    [closed => { close => 'before' }, 'peer_down'],
    [hang => { hang => 1 }, 'timeout'],
    [hang_body => { body_delay => 60_000 }, 'timeout'],
    [accel => { body => '', headers => [['X-Accel-Redirect', '/static']] },
     'local'],
    [accel_named => { body => '', headers => [['X-Accel-Redirect',
                                               '@named']] },
     'local'],
);


# ---- locations: [name, directives, path asked for, behaviour] ----

my @locations = (
    [plain => ''],
    [buffered => 'proxy_buffering on;'],
    [http_11 => 'proxy_http_version 1.1; proxy_set_header Connection "";'],
    [unbuffered => 'proxy_http_version 1.1; proxy_request_buffering off;'],
    [auth_request => 'auth_request /auth; auth_request_set $u $http_x_u;'],
    [access => 'allow 127.0.0.1; deny all; satisfy all;'],
    [mirror => 'mirror /to_mirror; mirror_request_body on;'],
    [post_action => 'post_action /post;'],
    [set => 'set $x $http_host; if ($x) { set $y 1; }'],
    [rewrite => 'rewrite ^/rewrite(.*)$ /other$1 break;'],
    [last => 'rewrite ^/last(.*)$ /at_last$1 last;'],
    [try => 'try_files /no/such/file @try;'],
    [limit_req => 'limit_req zone=req burst=8 nodelay;'],
    [limit_conn => 'limit_conn conn 4;'],
    [cache => 'proxy_cache cache; proxy_cache_methods POST;'
              . ' proxy_cache_key $uri$request_body;'
              . ' proxy_cache_valid any 1m;'],
    [log_sub => 'log_subrequest on; access_log %%dir%%/access.log;'],
    [filters => 'gzip on; gzip_types *; gunzip on; ssi on; sub_filter a b;'
                . ' sub_filter_types *; add_header X-A b always;'
                . ' addition_types *; add_after_body /static;'],
    [slow => 'limit_rate 1000; keepalive_timeout 0;'],
    [body_file => 'client_body_in_file_only clean;'
                  . ' client_body_buffer_size 1k;'],
    [intercept => 'proxy_intercept_errors on; error_page 404 = /static;',
     '', { status => 404, body => '' }],
    [intercept_named => 'proxy_intercept_errors on; error_page 500 @named;',
     '', { status => 500, body => '' }],
    [error_page => 'error_page 502 504 /static;', '', { close => 'before' }],
    [next => 'proxy_next_upstream error timeout http_404 http_500'
             . ' non_idempotent;', '', { status => 500, body => '' }],
    [args => '', '?a=%2f&b'],
    [length => 'client_max_body_size 1k; proxy_set_header X-L'
               . ' $request_length$request_time$request_id;'],
    [vary => 'proxy_set_header X-V "$remote_addr $remote_port $server_addr'
             . ' $connection $connection_requests $pipe $request'
             . ' $binary_remote_addr $msec $args";'],
);

push @locations, [scheme => 'proxy_set_header X-Proto $scheme;'] if $tls;

my %expect = (intercept => 1, intercept_named => 1, error_page => 1,
              next => 1);


# ---- one nginx with all of them ----

my @all = ((map { $_->[0] } @answers), map { $_->[0] } @locations);
my $first = 0;

my $upstreams = join "\n", map {
    my $zone = $first++ ? 'zone=mcp' : 'zone=mcp:2m';
    "upstream up_$_ { server %%fake1%%; mcp_keepalive $zone interval=200ms"
    . ' timeout=500ms max_idle=60s; mcp_reconnect backoff=500ms drain=off;'
    . ' keepalive 2; }'
} @all;

my $locations = join "\n",
    (map { "location /$_->[0] { proxy_pass http://up_$_->[0];"
           . ' proxy_http_version 1.1; proxy_set_header Connection ""; }' }
         @answers),
    (map { $_->[0] eq 'scheme' ? '' : location($_) } @locations);

my $nginx = nginx(
    fakes => [$fake], workers => 2, connections => 2048,
    http => $upstreams
          . "\nlimit_req_zone \$uri zone=req:1m rate=1r/m;"
          . 'limit_conn_zone $uri zone=conn:1m;'
          . 'proxy_cache_path %%dir%%/cache keys_zone=cache:1m;'
          . tls_server(),
    upstream => '', server => $locations . <<'END');
location = /auth { if ($http_x_key = "") { return 401; } return 204; }
location = /to_mirror { internal; proxy_pass http://%%fake1%%/mirrored; }
location = /post { return 204; }
location = /static { return 200 "static"; }
location @named { return 200 "named"; }
location @try { proxy_pass http://up_try; }
location /at_last { proxy_pass http://up_last; }
END

my %client = map { $_ => client(
    $nginx, keepalive => 0,
    $_ eq 'scheme' ? (port => $nginx->port(1)) : (),
    uri => "/$_" . path_of($_),
    headers => [['X-Key', 'k'], ['X-U', 'u']]) } @all;

my @steps = qw(initialize initialized);

my @opened = each_client([@client{@all}], \@steps, width => 20);

is(scalar(grep { $_->status =~ /^20[02]$/ } @opened), @all * @steps,
   'all sessions are open') or diag(map { $_->text . "\n" } @opened);

for my $case (@answers) {
    rule_for($case->[0], $case->[1]);
}

for my $case (@locations) {
    rule_for($case->[0], $case->[3]) if $case->[3];
}


# ---- verdicts ----

for my $case (@answers) {
    my ($name, undef, @right) = @$case;

    verdict($name, @right);
}

for my $case (@locations) {
    my $name = $case->[0];

    if ($expect{$name}) {
        verdict($name);
        next;
    }

    verdict($name, 'ok');
    eventually(sub { $fake->keepalives(session => $client{$name}->session)
                     >= 2 }, "$name: the server got them");
}

if ($tls) {
    my ($one) = $fake->keepalives(session => $client{scheme}->session);

    is(join('|', MCP::Fake::values_of($one // {}, 'X-Proto')), 'https',
       'scheme: https, as the client came');
}

my ($args) = $fake->keepalives(session => $client{args}->session);

is(($args // {})->{uri}, '/args?a=%2f&b', 'args: kept as sent');


# ---- nothing is left ----

$fake->clear;
each_client([@client{@all}], ['delete'], width => 20);
eventually(sub { $nginx->fetch('/stub')->body
                 =~ /Active connections: 1\b.*Reading: 0 Writing: 1 /s },
           'all requests and connections are released', 12);

my $posts = grep { /"POST/ } $nginx->access_lines;

is($posts, @all * @steps, 'the access log has the client requests only')
    or diag(map { "$_\n" } (grep { /"POST/ } $nginx->access_lines)[-5 .. -1]);

finish();


sub location {
    my ($case) = @_;

    my ($name, $text) = @$case;

    $text .= ' proxy_set_header X-Road ' . $name . ';'
        unless $text =~ /proxy_set_header/;
    return "location /$name { $text proxy_pass http://up_$name; }";
}


sub path_of {
    my ($name) = @_;

    my ($case) = grep { $_->[0] eq $name } @locations;

    return $case ? $case->[2] // '' : '';
}


sub rule_for {
    my ($name, $do) = @_;

    $fake->rule(do => $do,
                when => { keepalive => 1,
                          session => $client{$name}->session });
    return;
}


# One of the right verdicts, or any, is counted for the upstream.

sub verdict {
    my ($name, @right) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my %counted;
    my $seen = wait_for(sub {
        my $peer = $nginx->upstream("up_$name")->{peers}[0] // {};

        %counted = %{ $peer->{keepalives} // {} };
        delete @counted{qw(sent bytes)};
        $counted{$_} || delete $counted{$_} for keys %counted;

        # those sent before the behaviour was set were ok
        delete $counted{ok} if @right && !grep { $_ eq 'ok' } @right;

        return @right ? grep { $counted{$_} } @right : %counted;
    }, 6);

    Test::More::ok($seen, "$name: " . (@right ? join ' or ', @right
                                              : 'some verdict'))
        or Test::More::diag(Test::More::explain(\%counted));
    return;
}


# ---- TLS ----

sub tls_files {
    my $dir = MCP::Util::work_dir();

    system("openssl req -x509 -newkey rsa:2048 -nodes -days 2"
           . " -subj /CN=tools.example -keyout $dir/key.pem"
           . " -out $dir/cert.pem >/dev/null 2>&1");

    return $? == 0 ? $dir : undef;
}


# A plain front for the client, as Perl has no TLS by itself.

sub tls_server {
    return '' unless $tls;

    my ($scheme) = grep { $_->[0] eq 'scheme' } @locations;

    return 'server { listen 127.0.0.1:%%port1%%; access_log off;'
         . ' location / { proxy_pass https://127.0.0.1:%%port2%%;'
         . ' proxy_set_header Host $http_host; } }'
         . ' server { listen 127.0.0.1:%%port2%% ssl;'
         . " ssl_certificate $tls/cert.pem;"
         . " ssl_certificate_key $tls/key.pem; "
         . location($scheme) . ' }';
}
