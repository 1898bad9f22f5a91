package MCP::Util;

# Small things every helper needs: a clock, a wait, ports, a work folder,
# JSON over bytes.

use strict;
use warnings;

use Exporter 'import';
use Fcntl qw(LOCK_EX LOCK_NB);
use File::Path ();
use File::Spec ();
use File::Temp ();
use IO::Socket::INET ();
use JSON::PP ();
use Time::HiRes ();

our @EXPORT_OK = qw(now_ms now_us pause_ms wait_for slow free_port work_dir
                    drop_work_dir project_root json_text json_data slurp);

# Valgrind makes everything about twenty times slower.
our $slow = $ENV{MCP_VALGRIND} ? 10 : $ENV{MCP_SLOW} || 1;

my $json = JSON::PP->new->ascii->canonical->allow_nonref;
my ($dir, $owner);


sub now_ms { return int(now_us() / 1000) }


sub now_us {
    return int(Time::HiRes::clock_gettime(Time::HiRes::CLOCK_MONOTONIC())
               * 1_000_000);
}


sub pause_ms {
    my ($ms) = @_;

    select undef, undef, undef, $ms / 1000;
    return;
}


sub slow { return $slow }


# Polls until the condition is true and returns its value; false when
# timeout (seconds, stretched under valgrind) is over.

sub wait_for {
    my ($cond, $timeout, $step) = @_;

    my $end = now_ms() + ($timeout // 5) * 1000 * $slow;

    while (1) {
        my $value = $cond->();

        return $value if $value;
        return if now_ms() > $end;

        pause_ms($step // 15);
    }
}


# Below the ephemeral range, so that an outgoing connection never takes a port
# between two listens on it; and no other test file of the run, which is kept
# off by a lock as long as this process lives.

my %taken;

sub free_port {
    my $locks = File::Spec->tmpdir . '/mcp-ports';

    mkdir $locks, 0777;

    for (1 .. 1000) {
        my $port = 12_000 + int rand 20_000;

        next if $taken{$port};
        open $taken{$port}, '>>', "$locks/$port"
            or die "$locks/$port: $!\n";

        return $port if flock($taken{$port}, LOCK_EX | LOCK_NB)
            && IO::Socket::INET->new(LocalAddr => '127.0.0.1',
                                     LocalPort => $port, Listen => 1);
    }

    die "no free port\n";
}


sub work_dir {
    return $dir if defined $dir;

    my ($name) = $0 =~ m{([^/]+?)(?:\.t)?$};

    $owner = $$;
    $dir = File::Temp::tempdir("mcp-$name-XXXXXX", TMPDIR => 1);
    chmod 0755, $dir;

    return $dir;
}


# undef before anything was written.

sub kept_dir { return $dir }


sub drop_work_dir {
    return unless defined $dir && $owner == $$;

    File::Path::remove_tree($dir);
    undef $dir;
    return;
}


sub project_root {
    my $lib = __FILE__;

    require Cwd;
    $lib =~ s{[^/]+$}{};
    return Cwd::abs_path("$lib../../..");
}


sub json_text { return $json->encode($_[0]) }


sub json_data {
    my ($text) = @_;

    return eval { $json->decode($text) };
}


sub slurp {
    my ($file) = @_;

    open my $fh, '<:raw', $file or return '';
    local $/;
    return scalar(<$fh>) // '';
}


1;
