package MCP::Bench;

# What the programs in t/bench share: the fast peer and client (fast.c), HAProxy
# with a stick-table, medians, instructions by callgrind.  Everything started
# ends with the program.

use strict;
use warnings;

use Exporter 'import';
use MCP::Client ();
use MCP::Exchange ();
use MCP::Nginx ();
use MCP::Process qw(members spawn);
use MCP::Util qw(drop_work_dir free_port project_root slurp wait_for work_dir);

our @EXPORT_OK = qw(call cpu_us http_get instructions machine median nginx
                    open_sessions peer start_haproxy);

my @processes;

$SIG{$_} = sub { exit 1 } for qw(HUP INT TERM);


END {
    my $code = $?;

    MCP::Nginx::kill_all();

    while (my $pid = shift @processes) {
        kill 'KILL', members($pid);
        waitpid $pid, 0;
    }

    drop_work_dir();
    $? = $code;
}


sub median {
    my @sorted = sort { $a <=> $b } @_;

    return $sorted[$#sorted / 2];
}


# Time of one process on a CPU.

sub cpu_us { return (split / /, slurp("/proc/$_[0]/schedstat"))[0] / 1000 }


# The line that says where figures come from.

sub machine {
    my ($cpu) = slurp('/proc/cpuinfo') =~ /^model name\s*: (.+)/m;
    my $cores = () = slurp('/proc/cpuinfo') =~ /^processor/mg;
    my ($load) = slurp('/proc/loadavg') =~ /^(\S+)/;
    my $version = `@{[ MCP::Nginx::binary() ]} -v 2>&1` =~ s/.*: //sr;

    my ($day, $commit) = map { s/\s+$//r } `date -u +%F`,
                         `git -C @{[ project_root() ]} describe --always 2>&1`;

    chomp $version;
    return "$cpu, $cores cores; $version; load before: $load;"
           . " commit $commit, $day";
}


# ---- fast.c ----

sub fast {
    my $program = project_root() . '/objs/bench/fast';

    return $program if -x $program;
    system('make', '-s', '-C', project_root(), 'objs/bench/fast') == 0
        or die "fast.c does not compile\n";
    return $program;
}


# Starts a server and returns its address.

sub peer {
    my $port = free_port();

    push @processes, spawn(work_dir() . '/peer.log', fast(), 'peer', $port);
    wait_for(sub { http_get($port, '/count')->status == 200 }, 5)
        or die "no peer\n";

    return "127.0.0.1:$port";
}


sub http_get {
    my ($port, $uri) = @_;

    my $x = MCP::Exchange->new(port => $port, bytes =>
        "GET $uri HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");

    MCP::Exchange::drive([$x], timeout => 5,
                         until => sub { length $x->body });
    return $x;
}


# Opens sessions through a port; their ids are in the file that is returned.

sub open_sessions {
    my ($port, $n, $connections) = @_;

    my $file = work_dir() . "/ids-$port";

    system(fast() . ' open ' . join(' ', $port, $connections // 32, $n)
           . " > $file") == 0 or die "sessions cannot be opened\n";

    return $file;
}


# Calls for some time; { n, rps, bad, p50, p99, longest }, times in ms.

sub call {
    my ($port, $file, %arg) = @_;

    my $out = `@{[ join ' ', fast(), 'call', $port, $arg{connections} // 16,
                  $arg{ms} // 2000, $file, $arg{first} // 0, $arg{count} ]}`;
    my ($n, $bad, $s, $p50, $p99, $longest) = split ' ', $out;

    die "no calls\n" unless $n && $s > 0;

    return { n => $n, rps => $n / $s, bad => $bad, p50 => $p50 / 1000,
             p99 => $p99 / 1000, longest => $longest / 1000 };
}


# ---- proxies ----

# One nginx; module => 0: without ours.

sub nginx {
    my (%arg) = @_;

    return MCP::Nginx->new(
        level => 'notice', connections => 4096, %arg,
        http => 'access_log off; keepalive_requests 100000000;'
              . ($arg{http} // ''),
        upstream => ($arg{upstream} // '')
                  . ' keepalive 64; keepalive_requests 100000000;');
}


# HAProxy before servers, with a stick-table filled from the answers; returns
# its port and its pid.  The one on the machine, or Debian's, unpacked in
# objs/haproxy.

sub start_haproxy {
    my ($options, $check, @servers) = @_;

    my @command = find_haproxy() or return;
    my ($port, $dir, $n) = (free_port(), work_dir(), 0);
    my $servers = join '', map { "    server s@{[ ++$n ]} $_ $check\n" }
                  @servers;

    open my $fh, '>', "$dir/haproxy.cfg" or die "haproxy.cfg: $!\n";
    print {$fh} <<"END";
global
    maxconn 4000
    nbthread 1
defaults
    mode http
    timeout connect 2s
    timeout client 65s
    timeout server 65s
    $options
frontend mcp
    bind 127.0.0.1:$port
    default_backend sticky
backend sticky
    balance roundrobin
    stick-table type string len 64 size 100k expire 30m srvkey addr
    stick store-response res.hdr(Mcp-Session-Id) if { res.hdr(Mcp-Session-Id) -m found }
    stick match req.hdr(Mcp-Session-Id) if { req.hdr(Mcp-Session-Id) -m found }
$servers
END
    close $fh;

    push @processes, spawn("$dir/haproxy.log", @command, '-db', '-f',
                           "$dir/haproxy.cfg");

    return ($port, $processes[-1])
        if wait_for(sub { http_get($port, '/')->status }, 5);

    print slurp("$dir/haproxy.log");
    return;
}


sub find_haproxy {
    my ($found) = grep { -x } map { "$_/haproxy" } split(/:/, $ENV{PATH}),
                  '/usr/sbin';

    return $found if $found;

    my $dir = project_root() . '/objs/haproxy';
    my $binary = "$dir/root/usr/sbin/haproxy";

    unless (-x $binary) {
        print "fetching haproxy into objs/haproxy\n";
        system("mkdir -p $dir/root && cd $dir"
               . ' && apt-get -qq -o APT::Sandbox::User=root download haproxy'
               . ' liblua5.3-0 libopentracing-c-wrapper0 libopentracing1'
               . ' && for p in *.deb; do dpkg-deb -x $p root; done'
               . ' && rm -f *.deb') == 0 or return;
    }

    my ($lib) = glob "$dir/root/usr/lib/*-linux-gnu";

    return ('env', "LD_LIBRARY_PATH=$lib", $binary);
}


# ---- callgrind ----

# Instructions of one nginx process for each of its requests: the difference
# between many and few, so that the start does not count.

sub instructions {
    my ($few, $many, %arg) = @_;

    my @ir = map { counted($_, %arg) } $few, $many;

    return ($ir[1] - $ir[0]) / ($many - $few);
}


sub counted {
    my ($n, %arg) = @_;

    my $nginx = MCP::Nginx->prepare(
        level => 'notice', %arg, valgrind => 0,
        main => 'master_process off;',
        http => 'access_log off; keepalive_requests 100000000;',
        upstream => ($arg{upstream} // '')
                  . ' keepalive 64; keepalive_requests 100000000;');

    my $out = "$nginx->{dir}/callgrind";
    my $pid = spawn("$nginx->{dir}/output.log", 'valgrind', '--tool=callgrind',
                    "--callgrind-out-file=$out", $nginx->command);

    push @processes, $pid;
    wait_for(sub { http_get($nginx->{ports}{status}, '/up')->status == 200 },
             30) or die "nginx does not start: "
                        . slurp("$nginx->{dir}/output.log") . "\n";

    my $ids = open_sessions($nginx->port, 1, 1);
    my $client = MCP::Client->new(port => $nginx->port, keepalive => 1,
                                  session => slurp($ids) =~ s/\s+//gr);

    # one connection, one call after another

    for (1 .. $n) {
        my $x = $client->call;

        die 'callgrind: ' . $x->text . "\n" unless $x->status == 200;
    }

    kill 'QUIT', $pid;
    waitpid $pid, 0;

    my ($ir) = slurp($out) =~ /^(?:summary|totals): (\d+)/m;

    die "no figure of callgrind\n" unless $ir;
    system("cp $out $arg{keep}") if $arg{keep};
    return $ir;
}


1;
