#!/usr/bin/perl

# How long the status takes with many sessions:  perl -It/lib t/bench/status.pl
# [SESSIONS].  h2load opens them; nginx itself is the server that issues them.

use lib 't/lib';
use MCP::Test;
use MCP::Util qw(work_dir);
use Time::HiRes qw(time);

my $sessions = shift // 100_000;
my $body = work_dir() . '/initialize';

open my $fh, '>', $body or die "$body: $!\n";
print {$fh} '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}';
close $fh or die "$body: $!\n";

my $nginx = nginx(
    workers => 2, level => 'notice', servers => ['127.0.0.1:%%port2%%'],
    http => 'access_log off; keepalive_requests 1000000;'
          . 'server { listen 127.0.0.1:%%port2%%; location / {'
          . ' if ($request_method != POST) { return 405; }'
          . ' default_type application/json; add_header Mcp-Session-Id'
          . ' $request_id; return 200 \'{"jsonrpc":"2.0","id":1,'
          . '"result":{}}\'; } }',
    upstream => 'mcp_keepalive zone=mcp:' . int(1 + $sessions / 3500) . 'm;'
              . 'keepalive 64;',
    proxy => 'proxy_pass http://tools; proxy_http_version 1.1;'
           . 'proxy_set_header Connection "";');

my $port = $nginx->port;

system("h2load --h1 -n $sessions -c 32 -t 1 -d $body"
       . ' -H "Content-Type: application/json"'
       . " http://127.0.0.1:$port/mcp > @{[ work_dir() ]}/h2load 2>&1") == 0
    or die "h2load failed\n";

my $known = $nginx->upstream->{sessions}{active};

printf "%d sessions in the zone\n", $known;

for my $format (qw(json prometheus html)) {
    my @ms;

    for (1 .. 100) {
        my $began = time;
        my $x = $nginx->fetch("/status?format=$format");

        die $x->text . "\n" unless $x->status == 200;
        push @ms, 1000 * (time - $began);
    }

    @ms = sort { $a <=> $b } @ms;
    printf "%-10s  median %5.2f ms  longest %5.2f ms\n", $format,
           $ms[49], $ms[-1];
}

cmp_ok($known, '>=', 0.99 * $sessions, 'all sessions are known');
finish();
