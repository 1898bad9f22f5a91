#!/usr/bin/perl

# make demo, with real MCP servers and the official SDK client: keepalives are
# answered, a killed server shows as degraded with the errno text, started
# again it has lost its sessions and comes back.  Nothing is left running.

use lib 't/lib';
use MCP::Conf qw(module_file);
use MCP::Test;
use MCP::Process qw(members spawn);
use MCP::Util qw(free_port project_root slurp work_dir);

plan(skip_all => 'the demo loads a module') unless module_file();

my $output = work_dir() . '/demo.log';
my $demo;

{
    local $ENV{NGINX} = MCP::Nginx::binary();
    local $ENV{PORT} = free_port();
    local $ENV{TMPDIR} = work_dir();
    local $ENV{DEMO_SECONDS} = 120;

    $demo = spawn($output, 'node', project_root() . '/util/demo/demo.mjs');
}

ok(shows(qr/connecting -> connected$/m, 20), 'a session was learned');
ok(shows(qr/keepalives \d+: ok [1-9]/, 15), 'keepalives are answered');

my ($pid) = slurp($output) =~ /server-a runs, pid (\d+)/;
my ($peer) = '127.0.0.1:' . port_of($pid);

kill 'KILL', $pid;

ok(shows(qr/\Q$peer\E  connected -> degraded: .*\(111: Connection refused\)/,
         15), 'a killed server is degraded, with the errno text');

my $mark = length slurp($output);

kill 'USR1', $demo;

ok(shows(qr/server-a runs, pid/, 10, $mark), 'it is started again');
ok(shows(qr/\Q$peer\E .*session_lost [1-9]/, 20, $mark),
   'its sessions are lost');
ok(shows(qr/\Q$peer\E  \w+ -> connected$/m, 20, $mark),
   'it is connected again');

my @all = members($demo);

cmp_ok(scalar @all, '>=', 4, 'demo, nginx and two servers run');
kill 'TERM', $demo;

eventually(sub { waitpid($demo, 1) == $demo }, 'TERM ends the demo', 10);
is($?, 0, 'its exit code');
is_deeply([members($demo)], [], 'nothing is left running');

diag(slurp($output)) unless Test::More->builder->is_passing;

finish();


sub shows {
    my ($pattern, $timeout, $from) = @_;

    return wait_for(sub { substr(slurp($output), $from // 0) =~ $pattern },
                    $timeout, 50);
}


# The port in the environment of a demo server.

sub port_of {
    my ($server) = @_;

    return (slurp("/proc/$server/environ") =~ /(?:^|\0)PORT=(\d+)/)[0];
}


END {
    kill 'KILL', members($demo) if $demo;
}
