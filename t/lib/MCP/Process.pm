package MCP::Process;

# One nginx master in a session of its own, so that all it leaves behind
# can be found and ended by pid.

use strict;
use warnings;

use Exporter 'import';
use MCP::Util qw(wait_for);
use POSIX ();

our @EXPORT_OK = qw(spawn members);


# Runs a command with its output in a file; returns the pid.

sub spawn {
    my ($output, @command) = @_;

    my $pid = fork // die "fork: $!\n";

    return $pid if $pid;

    POSIX::setsid();
    open STDIN, '<', '/dev/null' or POSIX::_exit(1);
    open STDOUT, '>>', $output or POSIX::_exit(1);
    open STDERR, '>&', \*STDOUT or POSIX::_exit(1);

    exec { $command[0] } @command or POSIX::_exit(127);
}


# Living processes of the session that pid leads, zombies left out.

sub members {
    my ($leader) = @_;

    my @found;

    for my $file (glob '/proc/[0-9]*/stat') {
        open my $fh, '<', $file or next;
        my $line = <$fh> // next;

        # pid (name) state ppid pgrp session
        my ($pid, $state, $session) =
            $line =~ /^(\d+) \(.*\) (\S) \d+ \d+ (\d+)/ or next;

        push @found, $pid if $session == $leader && $state ne 'Z';
    }

    return @found;
}


1;
