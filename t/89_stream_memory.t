#!/usr/bin/perl

# Memory of a worker stays as it is while streams open and close, and while one
# stream gets heartbeat after heartbeat.  For the latter the clock of nginx runs
# a hundred times as fast: a heartbeat each millisecond.
#
# 2,000 opens and 5,000 heartbeats; MCP_LONG=1: 10,000 and 35,000.

use lib 't/lib';
use IO::Handle ();
use IPC::Open2 'open2';
use MCP::Test;
use MCP::Util qw(free_port project_root slurp work_dir);

plan(skip_all => 'memory is not what it is elsewhere')
    if $ENV{MCP_VALGRIND} || ($ENV{BUILD} // '') eq 'asan';

my $long = $ENV{MCP_LONG} ? 1 : 0;
my ($opens, $beats) = $long ? (10_000, 35_000) : (2000, 5000);
my $cc = $ENV{CC} || 'cc';
my $dir = work_dir();
my $root = project_root();

compile('hold', "$root/t/bench/hold.c");
compile('fast_clock.so', '-shared', '-fPIC', "$root/t/lib/fast_clock.c",
        '-ldl');

my $port = free_port();
my $origin = fork // die "fork: $!\n";

if (!$origin) {
    exec "$dir/hold", 'origin', $port or die "hold: $!\n";
}

pause_ms(200);
opens();
heartbeats();
finish();

END {
    if ($origin) {
        local $?;
        kill 'TERM', $origin;
        waitpid $origin, 0;
    }
}


sub compile {
    my ($name, @args) = @_;

    system($cc, '-O2', '-Wall', '-o', "$dir/$name", @args) == 0
        or die "$name does not compile\n";
    return;
}


sub up {
    my ($location) = @_;

    return nginx(servers => ["127.0.0.1:$port"], http => 'access_log off;',
                 upstream => 'mcp_keepalive zone=mcp:1m interval=off;'
                           . ' mcp_reconnect drain=off;',
                 location => "mcp_stream_timeout 10d; $location");
}


sub streams {
    my ($nginx) = @_;

    my $pid = open2(my $out, my $in, "$dir/hold", 'client', $nginx->port,
                    '/mcp');

    $in->autoflush(1);
    return { pid => $pid, in => $in, out => $out };
}


# How many streams there are, how many bytes came on all.

sub order {
    my ($client, $order) = @_;

    print { $client->{in} } "$order\n";
    return readline($client->{out}) =~ /streams (\d+) bytes (\d+)/;
}


sub leave {
    my ($client, $nginx) = @_;

    local $?;
    close $client->{in};
    waitpid $client->{pid}, 0;
    $nginx->stop;
    return;
}


# KiB that are its own.

sub memory {
    my ($nginx) = @_;

    my ($pid) = $nginx->workers;
    my $kb = 0;
    my $text = slurp("/proc/$pid/smaps_rollup");

    # clean ones are of libraries, "private" when no one else has them mapped
    $kb += $1 while $text =~ /^Private_Dirty: +(\d+)/mg;
    return $kb;
}


sub opens {
    my $nginx = up('');
    my $client = streams($nginx);
    my $rounds = $opens / 200;
    my $ended = sub {
        return $nginx->peer("127.0.0.1:$port")->{stream_ends}{count} // 0;
    };
    my @memory;

    for my $round (1 .. $rounds) {
        order($client, 'open 200');
        wait_for(sub { $nginx->upstream->{streams}{open} == 200 }, 20);
        order($client, 'close 200');
        wait_for(sub { $ended->() == 200 * $round }, 20);
        push @memory, memory($nginx);
    }

    is($ended->(), $opens, "$opens streams were opened and closed");
    cmp_ok($memory[-1], '<=', $memory[1] + 64, 'and have left nothing')
        or diag("@memory");
    diag("memory after 200 to $opens opens: @memory[0, 1] .. $memory[-1] KiB");
    return leave($client, $nginx);
}


sub heartbeats {
    my $nginx;

    {
        local $ENV{TEST_NGINX_BINARY} = fast_nginx();
        $nginx = up('mcp_heartbeat 100ms;');
    }

    my $client = streams($nginx);
    my @memory;

    order($client, 'open 1');
    pause_ms(300);

    my $from = now_ms();
    my ($n, $bytes);

    # as a chunk a heartbeat is of eight bytes

    wait_for(sub {
        ($n, $bytes) = order($client, 'count');
        push @memory, memory($nginx);
        return $bytes >= 8 * $beats;
    }, 180, 250);

    is($n, 1, 'the stream is open');
    cmp_ok($bytes / 8, '>=', $beats, "after $beats heartbeats");
    cmp_ok($memory[-1], '<=', $memory[1] + 64, 'that have left nothing')
        or diag("@memory");
    diag(sprintf 'memory over %d heartbeats on one stream, in %.0f s:'
         . ' %d .. %d KiB', $bytes / 8, (now_ms() - $from) / 1000,
         @memory[0, -1]);
    return leave($client, $nginx);
}


sub fast_nginx {
    my $file = "$dir/fast-nginx";

    open my $fh, '>', $file or die "$file: $!\n";
    print {$fh} "#!/bin/sh\nMCP_CLOCK=100 LD_PRELOAD=$dir/fast_clock.so"
              . " exec @{[ MCP::Nginx::binary() ]} \"\$@\"\n";
    close $fh or die "$file: $!\n";
    chmod 0755, $file;
    return $file;
}
