#!/usr/bin/perl

# A keepalive whose answer is 5 MB long costs next to nothing: no parse, no
# growth.  A stock nginx plays the server, which a scripted one is too slow for.
#
#   MCP_BIG=N   this many of them (100)

use lib 't/lib';
use MCP::Test;


plan(skip_all => 'a sanitizer keeps freed memory')
    if ($ENV{BUILD} // '') eq 'asan' || $ENV{MCP_VALGRIND};

my $many = $ENV{MCP_BIG} || 100;

for my $framing (qw(length chunked)) {
    my $origin = origin($framing);
    my $nginx = nginx(
        servers => ['127.0.0.1:' . $origin->port], level => 'notice',
        upstream => 'mcp_keepalive zone=mcp:1m interval=100ms rate=5000;'
                  . ' keepalive 8;');
    my @clients = clients($nginx, 40);

    each_client(\@clients, [qw(initialize initialized)], width => 4);

    eventually(sub { sent($nginx) >= 20 }, "$framing: the first ones", 20);

    my ($rss, $peak) = memory($nginx);

    eventually(sub { sent($nginx) >= 20 + $many }, "$framing: $many more", 60);

    my ($rss_after, $peak_after) = memory($nginx);
    my $keepalives = keepalives($nginx);

    is($keepalives->{ok}, $keepalives->{sent}, "$framing: all are ok");
    cmp_ok($keepalives->{bytes}, '>', 5_000_000 * $many,
           "$framing: all bytes came");

    cmp_ok($rss_after - $rss, '<=', 512, "$framing: memory is flat");

    # 8 at once: 64 KiB each, and what nginx's own buffers take of 5 MB
    cmp_ok($peak_after - $rss, '<=', 2048, "$framing: and was all the time");

    diag("$framing: $keepalives->{sent} answers of 5 MB, RSS $rss kB, then"
         . " $rss_after kB, peak $peak, then $peak_after kB")
        if $ENV{MCP_BIG};

    $_->stop for $nginx, $origin;
}

finish();


# Issues sessions and answers everything on them with the same long list.

sub origin {
    my ($framing) = @_;
    my $tool = '{"name":"tool","description":"' . 'x' x 4000 . '"},';
    my $list = '{"jsonrpc":"2.0","id":1,"result":{"tools":['
             . $tool x 1250 . '{"name":"last"}]}}';

    my $origin = nginx(module => 0, conf => <<"END");
map \$http_mcp_session_id \$new { '' \$request_id; }
server {
    listen 127.0.0.1:%%port%%;
    root %%dir%%;
    default_type application/json;
    keepalive_requests 100000;
    location /mcp {
        add_header Mcp-Session-Id \$new;
        if (\$new) { return 200 '{"jsonrpc":"2.0","id":1,"result":{}}'; }
        error_page 404 =200 /list.json;
    }
    location = /list.json {
        ${\ ($framing eq 'chunked' ? 'ssi on; ssi_types application/json;' : '')}
    }
}
END

    open my $fh, '>', "$origin->{dir}/list.json" or die "list.json: $!";
    print {$fh} $list;
    close $fh or die "list.json: $!";

    return $origin;
}


sub keepalives { return $_[0]->upstream->{peers}[0]{keepalives} }


sub sent { return keepalives($_[0])->{sent} // 0 }


# VmRSS and VmHWM of the worker, in kB.

sub memory {
    my ($nginx) = @_;
    my ($pid) = $nginx->workers;

    open my $fh, '<', "/proc/$pid/status" or die "/proc/$pid/status: $!";
    my $status = do { local $/; <$fh> };

    return map { $status =~ /^$_:\s+(\d+)/m } qw(VmRSS VmHWM);
}
